#!/usr/bin/env bash
# The root folder of the image for GPUs: docker/root.py with the plug-in, what that names, and what those libraries open by
# name when a run computes on a GPU. usage: docker/cuda_root.sh OUT
set -euo pipefail
site="$(cmake/deps.sh --torch-prefix)"
cudnn="$site/nvidia/cudnn/lib" cu13="$site/nvidia/cu13/lib"
# Convolutions open these of cuDNN, and its engines that are compiled at run time NVRTC. Left out: cudnn_adv, which is recurrent
# networks and CTC, and cuSOLVER with libtorch_cuda_linalg, which are decompositions of matrices. No task has either.
opened=(--opened "$cu13/libnvrtc.so.13" --opened "$cu13/libnvrtc-builtins.so.13.0")
for part in graph ops cnn heuristic engines_precompiled engines_runtime_compiled; do opened+=(--opened "$cudnn/libcudnn_$part.so.9"); done
# The wheels' own copies: the plug-in was linked with the compiler's, of the same versions.
export LD_LIBRARY_PATH="$site/torch/lib:$cu13:$cudnn:$site/nvidia/nccl/lib:$site/nvidia/cusparselt/lib:$site/nvidia/nvshmem/lib"
exec docker/root.py "$1" --shell --plugin build/release/lib/trainyard/libtrainyard_cuda.so "${opened[@]}" build/release/bin/trainyard
