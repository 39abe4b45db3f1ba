// The loss of predicted tokens.
#ifndef TRAINYARD_TRAINER_MODEL_TOKEN_LOSS_H_
#define TRAINYARD_TRAINER_MODEL_TOKEN_LOSS_H_

#include <ATen/core/Tensor.h>

#include <cstdint>

namespace trainyard {

// The sum of -log softmax(x weight^T)[target] over every place whose target is not `ignored`, in float32 from the
// logits on, which are made in x's type. A target that is neither a class nor ignored throws on the host and makes the
// sum NaN on a device. x: (..., width), weight: (classes, width), targets: (...) int64 -> a float32 scalar.
at::Tensor SumOfTokenLosses(const at::Tensor& x, const at::Tensor& weight, const at::Tensor& targets, int64_t ignored);

}  // namespace trainyard

#endif  // TRAINYARD_TRAINER_MODEL_TOKEN_LOSS_H_
