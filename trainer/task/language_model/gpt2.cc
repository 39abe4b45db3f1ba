#include "trainer/task/language_model/gpt2.h"

#include <ATen/TensorOperators.h>

#include <cmath>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>

#include "trainer/model/fused_ops.h"
#include "trainer/model/product.h"
#include "trainer/model/rows.h"
#include "trainer/model/token_loss.h"

namespace trainyard::lm {
namespace {

constexpr double kDeviation = 0.02, kNormEpsilon = 1e-5;

// What is added to the residual stream begins smaller, by the number of additions.
double ResidualDeviation(int64_t layers) { return kDeviation / std::sqrt(2.0 * static_cast<double>(layers)); }

}  // namespace

SampleWork WorkOf(const ModelShape& m) {
  const auto D = static_cast<double>(m.dim), L = static_cast<double>(m.layers), T = static_cast<double>(m.context);
  const double layer = 12 * D * D + 13 * D;  // four products with their biases, two norms
  const double parameters = L * layer + 2 * D + static_cast<double>(m.vocab) * D;
  return {.tokens = T, .flops = T * (6 * parameters + 12 * L * D * T)};
}

// https://huggingface.co/docs/transformers/model_doc/gpt2: what is not here has its default there.
std::string ConfigOf(const ModelShape& m) {
  const nlohmann::json config = {
      {"architectures", {"GPT2LMHeadModel"}},
      {"model_type", "gpt2"},
      {"vocab_size", m.vocab},
      {"n_positions", m.context},
      {"n_embd", m.dim},
      {"n_layer", m.layers},
      {"n_head", m.heads},
      {"activation_function", "gelu_new"},
      {"layer_norm_epsilon", kNormEpsilon},
      {"embd_pdrop", m.dropout},
      {"attn_pdrop", m.dropout},
      {"resid_pdrop", m.dropout},
      {"tie_word_embeddings", true},
      // A text ends with 256 only where bytes are tokens, and where a text begins nothing says.
      {"bos_token_id", nullptr},
      {"eos_token_id", nullptr},
      {"torch_dtype", "float32"}};
  return config.dump(1) + "\n";
}

Conv1D::Conv1D(const Scope& s, int64_t inputs, int64_t outputs, double deviation)
    : weight(s.Parameter("weight", {inputs, outputs}, {Initial::Kind::kNormal, deviation})),
      bias(s.Parameter("bias", {outputs}, {Initial::Kind::kConstant, 0})) {}

at::Tensor Conv1D::operator()(const Pass& pass, const at::Tensor& x) const {
  return Product(x, pass[weight].t(), pass[bias]);
}

Block::Block(const Scope& s, const ModelShape& m)
    : unit(s.unit()),
      heads(m.heads),
      norm1(s / "ln_1", m.dim, kNormEpsilon),
      norm2(s / "ln_2", m.dim, kNormEpsilon),
      qkv(s / "attn" / "c_attn", m.dim, 3 * m.dim, kDeviation),
      out(s / "attn" / "c_proj", m.dim, m.dim, ResidualDeviation(m.layers)),
      up(s / "mlp" / "c_fc", m.dim, 4 * m.dim, kDeviation),
      down(s / "mlp" / "c_proj", 4 * m.dim, m.dim, ResidualDeviation(m.layers)),
      attention_dropout(s, m.dropout),
      attended_dropout(s, m.dropout),
      output_dropout(s, m.dropout) {}

at::Tensor Block::operator()(const Pass& pass, const at::Tensor& x) const {
  const at::Tensor attended = CausalAttention(qkv(pass, norm1(pass, x)), heads, attention_dropout.Draw(pass));
  const at::Tensor y = x + attended_dropout(pass, out(pass, attended));
  const at::Tensor h = GeluTanh(up(pass, norm2(pass, y)));
  return y + output_dropout(pass, down(pass, h));
}

Gpt2::Gpt2(const Scope& s, const ModelShape& m)
    : ends_(s.Unit("embeddings and head") / "transformer"),
      tokens_(ends_ / "wte", m.vocab, m.dim, kDeviation),
      positions_(ends_ / "wpe", m.context, m.dim, kDeviation),
      dropout_(ends_, m.dropout),
      norm_(ends_ / "ln_f", m.dim, kNormEpsilon) {
  s.Alias("lm_head.weight", tokens_.weight);
  for (int64_t i = 0; i < m.layers; ++i) {
    const std::string number = std::to_string(i);
    blocks_.emplace_back(s.Unit("layer " + number) / "transformer" / "h" / number, m);
  }
}

at::Tensor Gpt2::SumOfLosses(const Pass& pass, const at::Tensor& tokens, const at::Tensor& targets,
                             int64_t ignored) const {
  // By value: a unit may run once more in backward.
  at::Tensor x = pass.Unit(ends_.unit(),
                           [=, this](at::TensorList) {
                             const at::Tensor positions = pass[positions_.weight].narrow(0, 0, tokens.size(1));
                             return dropout_(pass, AddToEach(tokens_(pass, tokens), positions));
                           },
                           {});
  for (const Block& block : blocks_) {
    x = pass.Unit(block.unit, [=, &block](at::TensorList in) { return block(pass, in[0]); }, {x});
  }
  return pass.Unit(ends_.unit(),
                   [=, this](at::TensorList in) {
                     return SumOfTokenLosses(norm_(pass, in[0]), pass[tokens_.weight], targets, ignored);
                   },
                   {x});
}

}  // namespace trainyard::lm
