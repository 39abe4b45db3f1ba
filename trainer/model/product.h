// The product of rows with a weight, and its gradients, with the same bits for any number of threads.
#ifndef TRAINYARD_TRAINER_MODEL_PRODUCT_H_
#define TRAINYARD_TRAINER_MODEL_PRODUCT_H_

#include <ATen/core/Tensor.h>

#include <optional>

namespace trainyard {

// x weight^T + bias, differentiable like at::linear.
//   x: (..., inputs), weight: (outputs, inputs), bias: (outputs) -> (..., outputs)
// The library cuts a product by threads, and the bits may follow the cuts; here each thread computes whole parts, whose
// bounds follow from the shape alone, of the result and of both gradients.
at::Tensor Product(const at::Tensor& x, const at::Tensor& weight, const std::optional<at::Tensor>& bias);

}  // namespace trainyard

#endif  // TRAINYARD_TRAINER_MODEL_PRODUCT_H_
