// The types that forward computes with, for kernels.
#ifndef TRAINYARD_TRAINER_CUDA_ELEMENT_H_
#define TRAINYARD_TRAINER_CUDA_ELEMENT_H_

#include <cstdint>

namespace trainyard::cuda {

enum class Element { kFloat32, kBfloat16, kFloat16 };

}  // namespace trainyard::cuda

#endif  // TRAINYARD_TRAINER_CUDA_ELEMENT_H_
