// Functions of each value, or of the values of a row, with the same bits for any number of threads. The library's own
// cut a tensor by threads, and at the edge of a cut they compute a value without vectors, with other last bits (seen of
// sigmoid, silu and softmax's gradient, with AVX-512).
#ifndef TRAINYARD_TRAINER_MODEL_ELEMENTWISE_H_
#define TRAINYARD_TRAINER_MODEL_ELEMENTWISE_H_

#include <ATen/core/Tensor.h>

namespace trainyard {

// x sigmoid(x), 1 / (1 + exp(-x)); any floating type and shape, differentiable.
at::Tensor Silu(const at::Tensor& x);
at::Tensor Sigmoid(const at::Tensor& x);
// Along the last axis.
at::Tensor Softmax(const at::Tensor& x);

}  // namespace trainyard

#endif  // TRAINYARD_TRAINER_MODEL_ELEMENTWISE_H_
