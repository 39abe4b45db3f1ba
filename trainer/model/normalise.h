// Batch normalisation's own operation, with what follows it in a ResNet, on the host.
#ifndef TRAINYARD_TRAINER_MODEL_NORMALISE_H_
#define TRAINYARD_TRAINER_MODEL_NORMALISE_H_

#include <ATen/core/Tensor.h>

namespace trainyard {

// kReluMaxPool: at::relu, and at::max_pool3d with windows of 3, a stride of 2 and a padding of 1; of equal values in a
// window the first, in the order of memory, gets the gradient; a NaN wins.
enum class AfterNorm { kNothing, kRelu, kReluMaxPool };

// (x - mean) / sqrt(variance + eps) weight + bias, and then what `after` says: computed in float32, rounded to x's type
// before a pooling. Differentiable; the same bits for any number of threads. Neither forward nor backward has the
// values between norm and pooling, or their gradients, of more than one plane for each thread: a stem's would be eight
// times what comes out.
//   x: (B, C, ...) contiguous, of float32, bfloat16 or float16; moments: (2, C), mean and variance, weight, bias: (C)
//   float32 -> x's shape; with kReluMaxPool x: (B, C, D, H, W) -> (B, C, (D + 1) / 2, (H + 1) / 2, (W + 1) / 2),
//   D H W below 2^31
at::Tensor Normalised(const at::Tensor& x, const at::Tensor& moments, const at::Tensor& weight, const at::Tensor& bias,
                      double eps, AfterNorm after);

}  // namespace trainyard

#endif  // TRAINYARD_TRAINER_MODEL_NORMALISE_H_
