#!/usr/bin/env bash
# Writes cmake/wheels/*.txt, what cmake/deps.sh installs, from the lists beside them: each wheel of the version listed, with the hashes
# that the registry names for it today. After a change of a list; needs uv, a package of the Python registry, and the network.
set -euo pipefail
cd "$(dirname "$0")/../cmake/wheels"
for list in *.in; do
  uv pip compile --quiet --no-deps --no-annotate --no-header --generate-hashes --python-version 3.11 "$list" --output-file "${list%.in}.txt"
  echo "cmake/wheels/${list%.in}.txt: $(grep -c '==' "${list%.in}.txt") wheels"
done
