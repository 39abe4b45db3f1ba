#!/usr/bin/env bash
# The demo: learning histories, two ranks, and what the policy does on goals it has never seen.
set -euo pipefail
cd "$(dirname "$0")/.."
bin=build/release/bin/trainyard
seed="${SEED:-42}"
out="${DEMO_DIR:-demo}"
rm -rf "$out/run"
mkdir -p "$out"
echo "1. Histories of a source algorithm on 81 goals (73 to train on, 8 held out)"
"$bin" synth algorithm_distillation --source ad_epsilon --size small --seed "$seed" --out "$out/data"
echo "2. Two ranks train a causal transformer on them"
"$bin" launch --nproc 2 --config manifests/examples/dark-room.config.yaml \
  --set data.path="$out/data" --set run.dir="$out/run" --set run.seed="$seed"
