// Multi-head attention (Vaswani et al., arXiv 1706.03762): softmax(q k^T / sqrt(D / H)) v of each head, differentiable;
// a dropped weight is one of the softmax. On fp32, bf16 or fp16 CPU tensors, with the same bits for any number of
// threads; sums are float32. One thread computes a head, sixteen queries at a time: a matrix of queries and keys is
// never there as a whole, and backward computes it again.
//
// Legend: B batch, C context rows, Q query rows, R = C + Q, N rows, K keys, D model width, H heads, which divide D.
#ifndef TRAINYARD_TRAINER_MODEL_ATTENTION_H_
#define TRAINYARD_TRAINER_MODEL_ATTENTION_H_

#include <ATen/core/Tensor.h>

#include <cstdint>

#include "trainer/model/dropout_draw.h"

namespace trainyard {

// Context rows see the context up to themselves, and query row i its first visible[b][i] context rows and itself.
//   qkv: (B, R, 3 D): queries, keys, values side by side, as in_proj gives them -> (B, R, D)
//   visible: (B, Q) int32
at::Tensor PrefixAttention(const at::Tensor& qkv, const at::Tensor& visible, int64_t heads, const DropoutDraw& dropout);
// The same for the query rows alone.  q: (B, Q, D), kv: (B, R, 2 D) -> (B, Q, D)
at::Tensor PrefixAttentionOfQueries(const at::Tensor& q, const at::Tensor& kv, const at::Tensor& visible, int64_t heads,
                                    const DropoutDraw& dropout);

// Every row sees every row.  qkv: (B, N, 3 D) -> (B, N, D)
at::Tensor SelfAttention(const at::Tensor& qkv, int64_t heads, const DropoutDraw& dropout);
// Every query sees every key.  q: (B, Q, D), kv: (B, K, 2 D) -> (B, Q, D)
at::Tensor CrossAttention(const at::Tensor& q, const at::Tensor& kv, int64_t heads, const DropoutDraw& dropout);

}  // namespace trainyard

#endif  // TRAINYARD_TRAINER_MODEL_ATTENTION_H_
