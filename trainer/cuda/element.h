// The types that forward computes with, for kernels; and for how many processors they are cut.
#ifndef TRAINYARD_TRAINER_CUDA_ELEMENT_H_
#define TRAINYARD_TRAINER_CUDA_ELEMENT_H_

#include <cstdint>

namespace trainyard::cuda {

enum class Element { kFloat32, kBfloat16, kFloat16 };

// Multiprocessors of an H100 or H200: grids are as large as keeps so many busy. How sums are cut, and so their bits,
// follows from it, on every GPU.
inline constexpr int64_t kProcessors = 132;

}  // namespace trainyard::cuda

#endif  // TRAINYARD_TRAINER_CUDA_ELEMENT_H_
