#!/usr/bin/env bash
# What is in the images of build/images, and that they run. Skipped, with the reason, where there is no podman.
set -euo pipefail
cd "$(dirname "$0")/../.."
if ! command -v podman >/dev/null; then
  echo "SKIPPED: tests/images: there is no podman; as root, cmake/deps.sh --images installs it"
  exit 0
fi
for image in operator trainer local; do
  [ -e "build/images/trainyard-$image.tar" ] || { echo "test-images: no build/images/trainyard-$image.tar: run make images" >&2; exit 1; }
done
cmake/deps.sh --images
PYTHONDONTWRITEBYTECODE=1 "$(cmake/deps.sh --images-python)" -m pytest -q -rs -p no:cacheprovider tests/images "$@"
