// Differentiable operations over the kernels: forward and backward on fp32, bf16 or fp16 CPU tensors, with the same
// bits for any number of threads.
//
// Legend: D model width.
#ifndef TRAINYARD_TRAINER_MODEL_FUSED_OPS_H_
#define TRAINYARD_TRAINER_MODEL_FUSED_OPS_H_

#include <ATen/core/Tensor.h>

#include "trainer/model/dropout_draw.h"

namespace trainyard {

// LayerNorm(x + dropout(r)) over the last dimension; gamma, beta: (D) float32; eps 1e-5.
at::Tensor DropoutAddNorm(const at::Tensor& x, const at::Tensor& r, const at::Tensor& gamma, const at::Tensor& beta,
                          const DropoutDraw& dropout);

// LayerNorm(x) over the last dimension; gamma, beta: float32, (D), or (B, D): a row of them for each sample of
// x: (B, ..., D).
at::Tensor Norm(const at::Tensor& x, const at::Tensor& gamma, const at::Tensor& beta, double eps);

// dropout(gelu(x)), exact gelu.
at::Tensor GeluDropout(const at::Tensor& x, const DropoutDraw& dropout);
// gelu(x) by its approximation with tanh.
at::Tensor GeluTanh(const at::Tensor& x);

}  // namespace trainyard

#endif  // TRAINYARD_TRAINER_MODEL_FUSED_OPS_H_
