#include "trainer/task/algorithm_distillation/transformer.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/embedding.h>
#include <ATen/ops/linear.h>
#include <ATen/ops/zeros_like.h>

#include <cmath>

#include "trainer/base/text.h"
#include "trainer/task/algorithm_distillation/windows.h"

namespace trainyard::ad {
namespace {

using Kind = Initial::Kind;

// torch.nn.Linear: weight and bias uniform in +-1/sqrt(inputs) (He et al. with a = sqrt 5).
void AddLinear(std::vector<ParameterSpec>& list, const std::string& name, int64_t outputs, int64_t inputs,
               const std::string& unit) {
  const double bound = 1 / std::sqrt(static_cast<double>(inputs));
  list.push_back({name + ".weight", {outputs, inputs}, unit, {Kind::kUniform, bound}});
  list.push_back({name + ".bias", {outputs}, unit, {Kind::kUniform, bound}});
}

void AddNorm(std::vector<ParameterSpec>& list, const std::string& name, int64_t width, const std::string& unit) {
  list.push_back({name + ".weight", {width}, unit, {Kind::kConstant, 1}, true});
  list.push_back({name + ".bias", {width}, unit, {Kind::kConstant, 0}, true});
}

}  // namespace

Transformer::Transformer(const Options& options)
    : model_(options.model),
      compressed_(options.mode == "compressed"),
      ffn_(options.model.ffn.value_or(4 * options.model.dim)) {}

std::vector<ParameterSpec> Transformer::Parameters() const {
  const int64_t D = model_.dim;
  const std::string ends = "embedding and heads";
  std::vector<ParameterSpec> list;
  list.push_back({"pos_embedding", {1, model_.context, D}, ends, {Kind::kTruncatedNormal, 0.02}});
  if (compressed_) {
    list.push_back({"compress_start_token", {1, 1, D}, ends, {Kind::kTruncatedNormal, 0.02}});
    list.push_back({"compress_end_token", {1, 1, D}, ends, {Kind::kTruncatedNormal, 0.02}});
  }
  list.push_back({"token_type_embedding.weight", {3, D}, ends, {Kind::kNormal, 1}});
  AddLinear(list, "embed_context", D, kFeatures, ends);
  list.push_back({"embed_query_state.weight", {kNumStates, D}, ends, {Kind::kNormal, 1}});
  AddLinear(list, "pred_action", kNumActions, D, ends);
  if (compressed_) AddLinear(list, "pred_token_type", 3, D, ends);
  for (int64_t i = 0; i < model_.layers; ++i) {
    const std::string unit = Format("layer %lld", static_cast<long long>(i));
    const std::string prefix = Format("transformer_encoder.layers.%lld.", static_cast<long long>(i));
    // torch.nn.MultiheadAttention: Glorot's uniform bound for the packed projection, zero biases.
    list.push_back({prefix + "self_attn.in_proj_weight",
                    {3 * D, D},
                    unit,
                    {Kind::kUniform, std::sqrt(6.0 / static_cast<double>(4 * D))}});
    list.push_back({prefix + "self_attn.in_proj_bias", {3 * D}, unit, {Kind::kConstant, 0}});
    list.push_back(
        {prefix + "self_attn.out_proj.weight", {D, D}, unit, {Kind::kUniform, 1 / std::sqrt(static_cast<double>(D))}});
    list.push_back({prefix + "self_attn.out_proj.bias", {D}, unit, {Kind::kConstant, 0}});
    AddLinear(list, prefix + "linear1", ffn_, D, unit);
    AddLinear(list, prefix + "linear2", D, ffn_, unit);
    AddNorm(list, prefix + "norm1", D, unit);
    AddNorm(list, prefix + "norm2", D, unit);
  }
  return list;
}

void Transformer::Bind(const FlatState& state) {
  positions_ = state.leaf("pos_embedding");
  type_embedding_ = state.leaf("token_type_embedding.weight");
  context_weight_ = state.leaf("embed_context.weight");
  context_bias_ = state.leaf("embed_context.bias");
  query_embedding_ = state.leaf("embed_query_state.weight");
  action_weight_ = state.leaf("pred_action.weight");
  action_bias_ = state.leaf("pred_action.bias");
  if (compressed_) {
    start_token_ = state.leaf("compress_start_token");
    end_token_ = state.leaf("compress_end_token");
    type_weight_ = state.leaf("pred_token_type.weight");
    type_bias_ = state.leaf("pred_token_type.bias");
  }
  layers_.clear();
  for (int64_t i = 0; i < model_.layers; ++i) {
    const std::string prefix = Format("transformer_encoder.layers.%lld.", static_cast<long long>(i));
    auto leaf = [&](const char* name) { return state.leaf(prefix + name); };
    layers_.push_back({leaf("self_attn.in_proj_weight"), leaf("self_attn.in_proj_bias"),
                       leaf("self_attn.out_proj.weight"), leaf("self_attn.out_proj.bias"), leaf("linear1.weight"),
                       leaf("linear1.bias"), leaf("linear2.weight"), leaf("linear2.bias"), leaf("norm1.weight"),
                       leaf("norm1.bias"), leaf("norm2.weight"), leaf("norm2.bias")});
  }
}

at::Tensor Transformer::Embed(const TransformerInput& input) const {
  const int64_t D = model_.dim, C = input.features.size(1);
  const auto dtype = context_weight_.scalar_type();
  const at::Tensor positions = positions_.view({-1, D});
  at::Tensor x_BCD = at::linear(input.features.to(dtype), context_weight_, context_bias_);
  if (compressed_) {
    // Tokens have no features; the bias must not reach them either.
    const at::Tensor is_step = input.kinds.eq(kTransitionToken).unsqueeze(-1).to(dtype);
    const at::Tensor tokens_3D =
        type_embedding_ + at::cat({at::zeros_like(start_token_), start_token_, end_token_}, 1).view({3, D});
    x_BCD = x_BCD * is_step + at::embedding(tokens_3D, input.kinds);
  } else {
    x_BCD = x_BCD + type_embedding_.narrow(0, kTransitionToken, 1);
  }
  x_BCD = x_BCD + positions.narrow(0, 0, C);
  at::Tensor q_BQD = at::embedding(query_embedding_, input.states) + at::embedding(positions, input.visible);
  if (compressed_) q_BQD = q_BQD + type_embedding_.narrow(0, kTransitionToken, 1);
  return at::cat({x_BCD, q_BQD}, 1);
}

at::Tensor Transformer::FeedForward(const Layer& layer, const at::Tensor& x, const at::Tensor& attended,
                                    DropoutKeys& dropout) const {
  const at::Tensor y = DropoutAddNorm(x, at::linear(attended, layer.out_weight, layer.out_bias), layer.norm1_weight,
                                      layer.norm1_bias, dropout);
  const at::Tensor h = GeluDropout(at::linear(y, layer.up_weight, layer.up_bias), dropout);
  return DropoutAddNorm(y, at::linear(h, layer.down_weight, layer.down_bias), layer.norm2_weight, layer.norm2_bias,
                        dropout);
}

at::Tensor Transformer::RunLayer(const Layer& layer, const at::Tensor& x, const TransformerInput& input, bool last,
                                 DropoutKeys& dropout) const {
  const int64_t D = model_.dim, C = input.features.size(1), Q = input.states.size(1);
  const AttentionLayout layout{C, model_.heads};
  if (!last) {
    const at::Tensor qkv = at::linear(x, layer.in_weight, layer.in_bias);
    return FeedForward(layer, x, PrefixAttention(qkv, input.visible, layout, dropout), dropout);
  }
  // Only the queries leave the last layer: the context's rows give keys and values, nothing more.
  const at::Tensor x_BQD = x.narrow(1, C, Q);
  const at::Tensor kv = at::linear(x, layer.in_weight.narrow(0, D, 2 * D), layer.in_bias.narrow(0, D, 2 * D));
  const at::Tensor q = at::linear(x_BQD, layer.in_weight.narrow(0, 0, D), layer.in_bias.narrow(0, 0, D));
  return FeedForward(layer, x_BQD, PrefixAttentionOfQueries(q, kv, input.visible, layout, dropout), dropout);
}

TransformerOutput Transformer::Forward(const TransformerInput& input, DropoutKeys& dropout) const {
  at::Tensor x = Embed(input);
  for (size_t i = 0; i < layers_.size(); ++i) x = RunLayer(layers_[i], x, input, i + 1 == layers_.size(), dropout);
  TransformerOutput output;
  output.actions = at::linear(x, action_weight_, action_bias_).to(at::kFloat);
  if (compressed_) output.types = at::linear(x, type_weight_, type_bias_).to(at::kFloat);
  return output;
}

}  // namespace trainyard::ad
