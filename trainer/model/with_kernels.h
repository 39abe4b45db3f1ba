// The kernels of a tensor's type.
#ifndef TRAINYARD_TRAINER_MODEL_WITH_KERNELS_H_
#define TRAINYARD_TRAINER_MODEL_WITH_KERNELS_H_

#include <c10/core/ScalarType.h>

#include <stdexcept>
#include <string>

#include "trainer/kernels/kernels.h"

namespace trainyard {

// Calls run(const kernels::Typed<T>&) with those of `type`: float32, bfloat16 or float16.
template <class Run>
void WithKernels(at::ScalarType type, Run run) {
  switch (type) {
    case at::kFloat:
      return run(kernels::Kernels().fp32);
    case at::kBFloat16:
      return run(kernels::Kernels().bf16);
    case at::kHalf:
      return run(kernels::Kernels().fp16);
    default:
      throw std::logic_error(std::string("there are no kernels for ") + c10::toString(type));
  }
}

}  // namespace trainyard

#endif  // TRAINYARD_TRAINER_MODEL_WITH_KERNELS_H_
