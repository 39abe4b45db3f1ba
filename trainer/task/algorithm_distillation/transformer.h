// The distilled policy: the reference's post-norm torch.nn.TransformerEncoder over transition tokens
// and query states, with its state_dict's names (docs/formats.md lists them).
//
// Legend: B batch, C context rows, Q queries, R = C + Q, D model width, A actions.
#ifndef TRAINYARD_TRAINER_TASK_ALGORITHM_DISTILLATION_TRANSFORMER_H_
#define TRAINYARD_TRAINER_TASK_ALGORITHM_DISTILLATION_TRANSFORMER_H_

#include <ATen/core/Tensor.h>

#include <optional>
#include <vector>

#include "trainer/model/layers.h"
#include "trainer/task/algorithm_distillation/options.h"
#include "trainer/task/work.h"

namespace trainyard::ad {

struct TransformerInput {
  at::Tensor features;  // (B, C, 10) float32; rows of tokens are zero
  at::Tensor kinds;     // (B, C) int64: TokenKind
  at::Tensor states;    // (B, Q) int64
  at::Tensor visible;   // (B, Q) int32: context rows that each query sees; also its position
};

struct TransformerOutput {
  at::Tensor actions;  // (B, Q, A) float32 logits
  at::Tensor types;    // (B, Q, 3) float32 logits; undefined in standard mode
};

// Of a sample with `context` context rows and `queries` queries, all of which are tokens.
SampleWork WorkOf(const Options& options, int64_t context, int64_t queries);

// One post-norm layer with its queries, keys and values in one product.
struct EncoderLayer {
  EncoderLayer(const Scope& s, int64_t dim, int64_t heads, int64_t ffn, double dropout);
  // x: (B, R, D) -> (B, R, D), or the queries alone, (B, Q, D): of the last layer nothing else is used.
  at::Tensor operator()(const Pass& pass, const at::Tensor& x, const TransformerInput& input, bool queries_only) const;

  UnitId unit;
  int64_t dim, heads;
  ParameterId in_weight, in_bias;  // (3 D, D), (3 D)
  Linear out, up, down;
  LayerNorm norm1, norm2;
  Dropout attention_dropout, attended_dropout, hidden_dropout, output_dropout;
};

// Immutable.
class Transformer {
 public:
  Transformer(const Scope& s, const Options& options);
  // Query i of sample b gets what the reference gives for the sequence of its visible[b][i] context
  // rows followed by the query.
  // The input lies in the host's memory, the output where forward computes.
  TransformerOutput Forward(const Pass& pass, const TransformerInput& batch) const;

 private:
  struct CompressionTokens {
    ParameterId start, end;  // (1, 1, D)
  };
  at::Tensor Embed(const Pass& pass, const TransformerInput& input) const;

  Scope ends_;  // the unit of embedding and heads
  bool compressed_;
  ParameterId positions_;  // (1, context, D)
  std::optional<CompressionTokens> tokens_;
  Embedding type_embedding_;
  Linear embed_context_;
  Embedding embed_query_state_;
  Linear pred_action_;
  std::optional<Linear> pred_token_type_;
  std::vector<EncoderLayer> layers_;
};

}  // namespace trainyard::ad

#endif  // TRAINYARD_TRAINER_TASK_ALGORITHM_DISTILLATION_TRANSFORMER_H_
