// Convolution and its gradients, with the same bits for any number of threads; but for a bias of one channel, whose
// gradient is a sum of LibTorch's.
#ifndef TRAINYARD_TRAINER_MODEL_CONVOLVE_H_
#define TRAINYARD_TRAINER_MODEL_CONVOLVE_H_

#include <ATen/core/Tensor.h>

#include <optional>

namespace trainyard {

// at::convolution without dilation and groups, differentiable.
//   x: (B, inputs, spatial...), weight: (outputs, inputs, kernel...), bias: (outputs) -> (B, outputs, spatial...)
// The library cuts a weight's gradient, a sum over samples and places, by threads; here it is a sum over blocks of
// samples, or of few places one product, whose cuts follow from the shapes alone.
// Of 16-bit values the weight's gradient is computed in float32 and rounded, on the host; so is the result in the
// shapes for which the library's own kernels have values that nobody wrote, and everything where the processor has no
// AVX-512, or for float16.
at::Tensor Convolve(const at::Tensor& x, const at::Tensor& weight, const std::optional<at::Tensor>& bias,
                    at::IntArrayRef stride, at::IntArrayRef padding);

}  // namespace trainyard

#endif  // TRAINYARD_TRAINER_MODEL_CONVOLVE_H_
