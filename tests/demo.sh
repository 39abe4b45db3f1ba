#!/usr/bin/env bash
# The demo: one TrainingJob, two workers, and what the policy does on goals it has never seen.
#   SEED=n      another seed for data, weights and evaluation (default 42)
#   DEMO_DIR=d  where everything goes (default demo)
set -euo pipefail
cd "$(dirname "$0")/.."
seed="${SEED:-42}"
out="${DEMO_DIR:-demo}"
[ ! -e "$out" ] || echo "demo: starting anew, and removing what the demo before left in $out (DEMO_DIR=elsewhere keeps it)"
rm -rf "$out"
mkdir -p "$out"
sed -e "s/ad_epsilon, --out/ad_epsilon, --seed, \"$seed\", --out/" -e "s/^    checkpoint: {every/    run: {seed: $seed}\n    checkpoint: {every/" \
  manifests/examples/dark-room.yaml >"$out/job.yaml"
exec build/release/bin/trainyard-operator local -f "$out/job.yaml" --state-dir "$out/state"
