// Mean and variance of a batch's channels, of the samples of one rank and of all, on the host.
#ifndef TRAINYARD_TRAINER_MODEL_BATCH_MOMENTS_H_
#define TRAINYARD_TRAINER_MODEL_BATCH_MOMENTS_H_

#include <ATen/core/Tensor.h>

namespace trainyard {

// x, and mean and variance of its channels: of each sample (B, 2 C), or to normalise with (2, C).
struct WithMoments {
  at::Tensor x;
  at::Tensor moments;
};

// Each channel's mean over its places, then its biased variance, of every sample. Differentiable; the same bits for any
// number of threads. The result's x is the same values in the same memory, and is to be used from there on: then the
// gradient of the moments is added to that of the values where it lies, and no third tensor of x's size is needed.
//   x: (B, C, ...) contiguous, of float32, bfloat16 or float16 -> moments: (B, 2 C) float32
WithMoments SampleMoments(const at::Tensor& x);

// rows: (R, 1 + 2 C) float32, a sample's weight and moments -> (2, C): those of all samples together; zeros without
// weight. Differentiable.
at::Tensor MomentsTogether(const at::Tensor& rows);

}  // namespace trainyard

#endif  // TRAINYARD_TRAINER_MODEL_BATCH_MOMENTS_H_
