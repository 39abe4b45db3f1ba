// Attention in which every query sees every key, with the same bits for any number of threads.
//
// Legend: B batch, Q queries, K keys, D width, H heads.
#ifndef TRAINYARD_TRAINER_MODEL_ATTENTION_H_
#define TRAINYARD_TRAINER_MODEL_ATTENTION_H_

#include <ATen/core/Tensor.h>

#include <cstdint>

#include "trainer/model/fused_ops.h"

namespace trainyard {

// softmax(q k^T / sqrt(D / H)) v of each head, differentiable (Vaswani et al., arXiv 1706.03762); a dropped weight is
// one of the softmax.  q: (B, Q, D), k, v: (B, K, D), of one floating type -> (B, Q, D). REQUIRES: H divides D.
// One thread computes a head, some hundred queries at a time: (Q, K) is never there as a whole, and backward computes
// it again. Products and sums are made in float32.
at::Tensor Attention(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v, int64_t heads,
                     const DropoutDraw& dropout);

}  // namespace trainyard

#endif  // TRAINYARD_TRAINER_MODEL_ATTENTION_H_
