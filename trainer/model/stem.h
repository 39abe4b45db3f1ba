// A convolution that has kernels of its own: a 3-D ResNet's first one, in bfloat16 on a processor with such products.
#ifndef TRAINYARD_TRAINER_MODEL_STEM_H_
#define TRAINYARD_TRAINER_MODEL_STEM_H_

#include <ATen/core/Tensor.h>

namespace trainyard {

// Whether x, of the host, and the weight are such a convolution's (kernels/stem.h), and the processor has the products.
bool IsStem(const at::Tensor& x, const at::Tensor& weight, at::IntArrayRef stride, at::IntArrayRef padding);

// x: (B, 1, D, H, W), weight: (outputs, 1, 7, 7, 7) -> (B, outputs, ...). REQUIRES: IsStem().
at::Tensor ConvolveStem(const at::Tensor& x, const at::Tensor& weight, int64_t stride);

// Of samples, in their order, in float32. dy: (B, outputs, ...) -> (outputs, 1, 7, 7, 7)
at::Tensor StemWeightGradient(const at::Tensor& dy, const at::Tensor& x, int64_t stride);

}  // namespace trainyard

#endif  // TRAINYARD_TRAINER_MODEL_STEM_H_
