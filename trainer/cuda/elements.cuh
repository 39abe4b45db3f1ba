// Values of the types that forward computes with, sixteen bytes at a time; and what kernels have in common.
#ifndef TRAINYARD_TRAINER_CUDA_ELEMENTS_CUH_
#define TRAINYARD_TRAINER_CUDA_ELEMENTS_CUH_

#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include "trainer/cuda/element.h"

namespace trainyard::cuda {

__device__ inline float ToFloat(__nv_bfloat16 x) { return __bfloat162float(x); }
__device__ inline float ToFloat(__half x) { return __half2float(x); }
__device__ inline float ToFloat(float x) { return x; }
// To the nearest, ties to even, as on the host.
__device__ inline void FromFloat(float x, __nv_bfloat16& y) { y = __float2bfloat16_rn(x); }
__device__ inline void FromFloat(float x, __half& y) { y = __float2half_rn(x); }
__device__ inline void FromFloat(float x, float& y) { y = x; }

// Calls run(zero) with a value of the type.
template <class Run>
auto OfElement(Element type, Run run) {
  if (type == Element::kBfloat16) return run(__nv_bfloat16{});
  if (type == Element::kFloat16) return run(__half{});
  return run(float{});
}

// What one load or store moves.
template <class T>
struct alignas(16) Pack {
  static constexpr int kSize = 16 / sizeof(T);
  T values[kSize];
};

}  // namespace trainyard::cuda

#endif  // TRAINYARD_TRAINER_CUDA_ELEMENTS_CUH_
