// Element, of LibTorch's types.
#ifndef TRAINYARD_TRAINER_CUDA_ELEMENT_OF_H_
#define TRAINYARD_TRAINER_CUDA_ELEMENT_OF_H_

#include <c10/core/ScalarType.h>

#include <stdexcept>
#include <string>

#include "trainer/cuda/element.h"

namespace trainyard {

inline cuda::Element ElementOf(at::ScalarType type) {
  if (type == at::kFloat) return cuda::Element::kFloat32;
  if (type == at::kBFloat16) return cuda::Element::kBfloat16;
  if (type == at::kHalf) return cuda::Element::kFloat16;
  throw std::logic_error(std::string("there are no kernels for ") + c10::toString(type));
}

}  // namespace trainyard

#endif  // TRAINYARD_TRAINER_CUDA_ELEMENT_OF_H_
