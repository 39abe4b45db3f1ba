// Differentiable operations over the kernels: forward and backward on fp32, bf16 or fp16 CPU tensors, with the same
// bits for any number of threads.
//
// Legend: B batch, C context rows, Q query rows, R = C + Q, D model width, H heads.
#ifndef TRAINYARD_TRAINER_MODEL_FUSED_OPS_H_
#define TRAINYARD_TRAINER_MODEL_FUSED_OPS_H_

#include <ATen/core/Tensor.h>

#include <cstdint>

namespace trainyard {

// What a dropout draws from (layers.h, Dropout): its mask is a pure function of the key. p = 0 drops nothing.
struct DropoutDraw {
  uint64_t key = 0;
  double p = 0;
};

struct AttentionLayout {
  int64_t context;  // C
  int64_t heads;    // H
};

// Multi-head attention in which context rows see the context up to themselves, and query row i sees
// its first visible[b][i] context rows and itself.
//   qkv: (B, R, 3 D): queries, keys, values side by side, as in_proj gives them -> (B, R, D)
//   visible: (B, Q) int32
at::Tensor PrefixAttention(const at::Tensor& qkv, const at::Tensor& visible, AttentionLayout layout,
                           const DropoutDraw& dropout);
// The same for the query rows alone.  q: (B, Q, D), kv: (B, R, 2 D) -> (B, Q, D)
at::Tensor PrefixAttentionOfQueries(const at::Tensor& q, const at::Tensor& kv, const at::Tensor& visible,
                                    AttentionLayout layout, const DropoutDraw& dropout);

// LayerNorm(x + dropout(r)) over the last dimension; gamma, beta: (D) float32; eps 1e-5.
at::Tensor DropoutAddNorm(const at::Tensor& x, const at::Tensor& r, const at::Tensor& gamma, const at::Tensor& beta,
                          const DropoutDraw& dropout);

// LayerNorm(x) over the last dimension; gamma, beta: (D) float32.
at::Tensor Norm(const at::Tensor& x, const at::Tensor& gamma, const at::Tensor& beta, double eps);

// dropout(gelu(x)), exact gelu.
at::Tensor GeluDropout(const at::Tensor& x, const DropoutDraw& dropout);
// gelu(x) by its approximation with tanh.
at::Tensor GeluTanh(const at::Tensor& x);

}  // namespace trainyard

#endif  // TRAINYARD_TRAINER_MODEL_FUSED_OPS_H_
