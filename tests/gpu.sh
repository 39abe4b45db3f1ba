#!/usr/bin/env bash
# Everything that a machine with a GPU can show and one without cannot (docs/gpu.md): `make test-gpu`.
set -uo pipefail
cd "$(dirname "$0")/.."
bin=$PWD/build/release/bin lib=$PWD/build/release/lib
if ! "$bin/trainyard" --version | tee /dev/stderr | grep -q "opens, and sees [1-9]"; then
  echo "test-gpu: there is no GPU to test on" >&2
  exit 1
fi
failed=0
"$bin/device_test" --gtest_filter='*Cuda*' || failed=1
"$bin/model_test" --gtest_filter='*Cuda*' || failed=1
export TRAINYARD_THOROUGH=1 TRAINYARD_BIN=$bin/trainyard TRAINYARD_TEST_TASKS_BIN=$bin/trainyard-with-test-tasks
tests=("$(cmake/deps.sh --python)" -m pytest -q -p no:cacheprovider tests/integration/test_device.py)
# Alone, through NCCL; then ranks that share the GPU, which NCCL refuses, through the host.
TRAINYARD_FAR_PLUGIN=$lib/trainyard/libtrainyard_cuda.so "${tests[@]}" -k 'alone or goes' || failed=1
SHARED_GPU_OF=$lib/trainyard/libtrainyard_cuda.so TRAINYARD_FAR_PLUGIN=$lib/libshared_gpu_plugin.so "${tests[@]}" || failed=1
exit $failed
