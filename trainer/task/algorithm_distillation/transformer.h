// The distilled policy: the reference's post-norm torch.nn.TransformerEncoder over transition tokens
// and query states, with its state_dict's names (docs/formats.md lists them).
//
// Legend: B batch, C context rows, Q queries, R = C + Q, D model width, A actions.
#ifndef TRAINYARD_TRAINER_TASK_ALGORITHM_DISTILLATION_TRANSFORMER_H_
#define TRAINYARD_TRAINER_TASK_ALGORITHM_DISTILLATION_TRANSFORMER_H_

#include <ATen/core/Tensor.h>

#include <string>
#include <vector>

#include "trainer/model/fused_ops.h"
#include "trainer/parallel/flat_state.h"
#include "trainer/task/algorithm_distillation/options.h"

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

class Transformer {
 public:
  explicit Transformer(const Options& options);
  std::vector<ParameterSpec> Parameters() const;
  void Bind(const FlatState& state);
  // Query i of sample b gets what the reference gives for the sequence of its visible[b][i] context
  // rows followed by the query. REQUIRES: Bind was called.
  TransformerOutput Forward(const TransformerInput& input, DropoutKeys& dropout) const;

 private:
  struct Layer {
    at::Tensor in_weight, in_bias;    // (3D, D), (3D)
    at::Tensor out_weight, out_bias;  // (D, D), (D)
    at::Tensor up_weight, up_bias;    // (F, D), (F)
    at::Tensor down_weight, down_bias;
    at::Tensor norm1_weight, norm1_bias, norm2_weight, norm2_bias;  // (D)
  };
  at::Tensor Embed(const TransformerInput& input) const;
  at::Tensor FeedForward(const Layer& layer, const at::Tensor& x, const at::Tensor& attended,
                         DropoutKeys& dropout) const;
  at::Tensor RunLayer(const Layer& layer, const at::Tensor& x, const TransformerInput& input, bool last,
                      DropoutKeys& dropout) const;

  ModelOptions model_;
  bool compressed_;
  int64_t ffn_;
  std::vector<Layer> layers_;
  at::Tensor context_weight_, context_bias_, query_embedding_, positions_, type_embedding_, start_token_, end_token_;
  at::Tensor action_weight_, action_bias_, type_weight_, type_bias_;
};

}  // namespace trainyard::ad

#endif  // TRAINYARD_TRAINER_TASK_ALGORITHM_DISTILLATION_TRANSFORMER_H_
