// Differentiable operations over the kernels: forward and backward on fp32 or bf16 CPU tensors.
//
// Legend: B batch, C context rows, Q query rows, R = C + Q, D model width, H heads.
#ifndef TRAINYARD_TRAINER_MODEL_FUSED_OPS_H_
#define TRAINYARD_TRAINER_MODEL_FUSED_OPS_H_

#include <ATen/core/Tensor.h>

#include <cstdint>

namespace trainyard {

// Where a dropout draws from: each application takes the next key of the micro-batch's sequence,
// so the masks are a pure function of (micro-batch key, place in the network).
class DropoutKeys {
 public:
  // p = 0 drops nothing.
  DropoutKeys(uint64_t key, double p) : key_(key), p_(p) {}
  uint64_t Next();
  double p() const { return p_; }

 private:
  uint64_t key_, count_ = 0;
  double p_;
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
                           DropoutKeys& dropout);
// The same for the query rows alone.  q: (B, Q, D), kv: (B, R, 2 D) -> (B, Q, D)
at::Tensor PrefixAttentionOfQueries(const at::Tensor& q, const at::Tensor& kv, const at::Tensor& visible,
                                    AttentionLayout layout, DropoutKeys& dropout);

// LayerNorm(x + dropout(r)) over the last dimension; gamma, beta: (D) float32; eps 1e-5.
at::Tensor DropoutAddNorm(const at::Tensor& x, const at::Tensor& r, const at::Tensor& gamma, const at::Tensor& beta,
                          DropoutKeys& dropout);

// dropout(gelu(x)), exact gelu.
at::Tensor GeluDropout(const at::Tensor& x, DropoutKeys& dropout);

}  // namespace trainyard

#endif  // TRAINYARD_TRAINER_MODEL_FUSED_OPS_H_
