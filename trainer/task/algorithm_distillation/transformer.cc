#include "trainer/task/algorithm_distillation/transformer.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/embedding.h>
#include <ATen/ops/zeros_like.h>

#include <cmath>
#include <string>

#include "trainer/model/attention.h"
#include "trainer/model/fused_ops.h"
#include "trainer/model/product.h"
#include "trainer/model/rows.h"
#include "trainer/task/algorithm_distillation/windows.h"

namespace trainyard::ad {
namespace {

using Kind = Initial::Kind;
constexpr Initial kZero{Kind::kConstant, 0}, kToken{Kind::kTruncatedNormal, 0.02};

LinearOptions ZeroBias() { return {.bias = true, .weight_initial = {}, .bias_initial = kZero, .parameters = {}}; }

}  // namespace

SampleWork WorkOf(const Options& options, int64_t context, int64_t queries) {
  const ModelOptions& m = options.model;
  const auto D = static_cast<double>(m.dim), F = static_cast<double>(m.ffn.value_or(4 * m.dim)),
             C = static_cast<double>(context), Q = static_cast<double>(queries), R = C + Q,
             L = static_cast<double>(m.layers - 1);  // but the last, of which only the queries leave
  const double layer = 4 * D * D + 2 * D * F + 9 * D + F, keys_and_values = 2 * D * D + 2 * D;
  const double heads = (D + 1) * (kNumActions + (options.mode == "compressed" ? 3 : 0));
  const double parameters = C * (kFeatures + 1) * D + L * R * layer + R * keys_and_values +
                            Q * (layer - keys_and_values + heads);  // that all rows together go through
  return {.tokens = R, .flops = 6 * parameters + 12 * D * C * (L * R + Q)};
}

// torch.nn.MultiheadAttention: Glorot's uniform bound for the packed projection, zero biases.
EncoderLayer::EncoderLayer(const Scope& s, int64_t dim, int64_t heads, int64_t ffn, double dropout)
    : unit(s.unit()),
      dim(dim),
      heads(heads),
      in_weight((s / "self_attn")
                    .Parameter("in_proj_weight", {3 * dim, dim},
                               {Kind::kUniform, std::sqrt(6.0 / static_cast<double>(4 * dim))})),
      in_bias((s / "self_attn").Parameter("in_proj_bias", {3 * dim}, kZero)),
      out(s / "self_attn" / "out_proj", dim, dim, ZeroBias()),
      up(s / "linear1", dim, ffn),
      down(s / "linear2", ffn, dim),
      norm1(s / "norm1", dim),
      norm2(s / "norm2", dim),
      attention_dropout(s, dropout),
      attended_dropout(s, dropout),
      hidden_dropout(s, dropout),
      output_dropout(s, dropout) {}

at::Tensor EncoderLayer::operator()(const Pass& pass, const at::Tensor& x, const TransformerInput& input,
                                    bool queries_only) const {
  const int64_t C = input.features.size(1), Q = input.states.size(1);
  const at::Tensor weight = pass[in_weight], bias = pass[in_bias];
  const DropoutDraw drop = attention_dropout.Draw(pass);
  at::Tensor residual = x, attended;
  if (queries_only) {
    // The context's rows give keys and values, nothing more.
    residual = x.narrow(1, C, Q);
    const at::Tensor kv = Product(x, weight.narrow(0, dim, 2 * dim), bias.narrow(0, dim, 2 * dim));
    const at::Tensor q = Product(residual, weight.narrow(0, 0, dim), bias.narrow(0, 0, dim));
    attended = PrefixAttentionOfQueries(q, kv, input.visible, heads, drop);
  } else {
    attended = PrefixAttention(Product(x, weight, bias), input.visible, heads, drop);
  }
  const at::Tensor y =
      DropoutAddNorm(residual, out(pass, attended), pass[norm1.weight], pass[norm1.bias], attended_dropout.Draw(pass));
  const at::Tensor h = GeluDropout(up(pass, y), hidden_dropout.Draw(pass));
  return DropoutAddNorm(y, down(pass, h), pass[norm2.weight], pass[norm2.bias], output_dropout.Draw(pass));
}

Transformer::Transformer(const Scope& s, const Options& options)
    : ends_(s.Unit("embedding and heads")),
      compressed_(options.mode == "compressed"),
      positions_(ends_.Parameter("pos_embedding", {1, options.model.context, options.model.dim}, kToken)),
      tokens_(compressed_ ? std::optional(CompressionTokens{
                                ends_.Parameter("compress_start_token", {1, 1, options.model.dim}, kToken),
                                ends_.Parameter("compress_end_token", {1, 1, options.model.dim}, kToken)})
                          : std::nullopt),
      type_embedding_(ends_ / "token_type_embedding", 3, options.model.dim),
      embed_context_(ends_ / "embed_context", kFeatures, options.model.dim),
      embed_query_state_(ends_ / "embed_query_state", kNumStates, options.model.dim),
      pred_action_(ends_ / "pred_action", options.model.dim, kNumActions) {
  if (compressed_) pred_token_type_.emplace(ends_ / "pred_token_type", options.model.dim, 3);
  const ModelOptions& m = options.model;
  for (int64_t i = 0; i < m.layers; ++i) {
    const std::string number = std::to_string(i);
    layers_.emplace_back(s.Unit("layer " + number) / "transformer_encoder.layers" / number, m.dim, m.heads,
                         m.ffn.value_or(4 * m.dim), m.dropout);
  }
}

at::Tensor Transformer::Embed(const Pass& pass, const TransformerInput& input) const {
  const int64_t C = input.features.size(1);
  const at::Tensor types = pass[type_embedding_.weight], positions = pass[positions_].flatten(0, 1);
  const auto dtype = types.scalar_type();
  at::Tensor x_BCD = embed_context_(pass, input.features.to(dtype));
  if (compressed_) {
    // Tokens have no features; the bias must not reach them either.
    const at::Tensor is_step = input.kinds.eq(kTransitionToken).unsqueeze(-1).to(dtype);
    const at::Tensor start = pass[tokens_->start], end = pass[tokens_->end];
    const at::Tensor tokens_3D = types + at::cat({at::zeros_like(start), start, end}, 1).squeeze(0);
    x_BCD = x_BCD * is_step + at::embedding(tokens_3D, input.kinds);
  } else {
    x_BCD = AddToEach(x_BCD, types.select(0, kTransitionToken));
  }
  x_BCD = AddToEach(x_BCD, positions.narrow(0, 0, C));
  at::Tensor q_BQD = embed_query_state_(pass, input.states) + at::embedding(positions, input.visible);
  if (compressed_) q_BQD = AddToEach(q_BQD, types.select(0, kTransitionToken));
  return at::cat({x_BCD, q_BQD}, 1);
}

TransformerOutput Transformer::Forward(const Pass& pass, const TransformerInput& batch) const {
  const TransformerInput input{pass.Upload(batch.features), pass.Upload(batch.kinds), pass.Upload(batch.states),
                               pass.Upload(batch.visible)};
  // By value: a unit may run once more in backward.
  at::Tensor x = pass.Unit(ends_.unit(), [=, this](at::TensorList) { return Embed(pass, input); }, {});
  for (size_t i = 0; i < layers_.size(); ++i) {
    const bool last = i + 1 == layers_.size();
    x = pass.Unit(layers_[i].unit, [=, this](at::TensorList in) { return layers_[i](pass, in[0], input, last); }, {x});
  }
  TransformerOutput output;
  auto head = [&](const Linear& linear) {
    return pass.Unit(ends_.unit(), [pass, &linear](at::TensorList in) { return linear(pass, in[0]).to(at::kFloat); },
                     {x});
  };
  output.actions = head(pred_action_);
  if (compressed_) output.types = head(*pred_token_type_);
  return output;
}

}  // namespace trainyard::ad
