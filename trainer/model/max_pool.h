// The pooling of ResNets' stems, without the library's 27 comparisons for each value.
#ifndef TRAINYARD_TRAINER_MODEL_MAX_POOL_H_
#define TRAINYARD_TRAINER_MODEL_MAX_POOL_H_

#include <ATen/core/Tensor.h>

namespace trainyard {

// at::max_pool3d with windows of 3, a stride of 2 and a padding of 1: the same values, and of equal ones in a window
// the first, in the order of memory, gets the gradient; a NaN wins. Differentiable.
//   x: (B, C, D, H, W) of float32, bfloat16 or float16 -> (B, C, (D + 1) / 2, (H + 1) / 2, (W + 1) / 2)
at::Tensor MaxPool3d(const at::Tensor& x);

}  // namespace trainyard

#endif  // TRAINYARD_TRAINER_MODEL_MAX_POOL_H_
