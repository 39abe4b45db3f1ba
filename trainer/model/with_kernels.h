// The kernels of a tensor's type.
#ifndef TRAINYARD_TRAINER_MODEL_WITH_KERNELS_H_
#define TRAINYARD_TRAINER_MODEL_WITH_KERNELS_H_

#include <ATen/core/Tensor.h>

#include <stdexcept>
#include <string>

#include "trainer/kernels/kernels.h"
#include "trainer/model/dropout_draw.h"

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

// A tensor's elements, in the kernels' type.
template <class T>
T* Data(const at::Tensor& x) {
  return reinterpret_cast<T*>(x.data_ptr());
}

inline kernels::Dropout ToDropout(const DropoutDraw& draw) { return {draw.key, static_cast<float>(draw.p)}; }

}  // namespace trainyard

#endif  // TRAINYARD_TRAINER_MODEL_WITH_KERNELS_H_
