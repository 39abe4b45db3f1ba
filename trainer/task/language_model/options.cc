#include "trainer/task/language_model/options.h"

#include <map>
#include <nlohmann/json.hpp>

#include "trainer/base/error.h"
#include "trainer/base/text.h"

namespace trainyard::lm {
namespace {

constexpr auto kIdentity = FieldClass::kIdentity;
constexpr int64_t kMaxVocab = 65536;  // tokens are uint16

// The tiny one's vocabulary is that of plain text: 256 bytes and the end of a text.
const std::map<std::string, ModelShape> kPresets = {
    {"tiny", {.vocab = 257, .context = 64, .dim = 64, .layers = 2, .heads = 2, .dropout = 0}},
    {"gpt2_124m", {.vocab = 50257, .context = 1024, .dim = 768, .layers = 12, .heads = 12, .dropout = 0.1}}};

// "...; auto: 64 (tiny), 768 (gpt2_124m)."
std::string PerPreset(const std::string& doc, double (*value)(const ModelShape&)) {
  std::vector<std::string> parts;
  for (const char* name : {"tiny", "gpt2_124m"}) parts.push_back(Format("%g (%s)", value(kPresets.at(name)), name));
  return doc + "; auto: " + Join(parts) + ".";
}

}  // namespace

void Options::Declare(FieldTable& t) {
  const auto preset = [this]() -> const ModelShape& { return kPresets.at(model.preset); };
  t.OptInt("task.eval_windows", eval_windows, "null", 1, FieldClass::kSchedule,
           "Windows of the held-out part, spread over it, in one evaluation; null: all of them.");
  t.Choice("model.preset", model.preset, {"tiny", "gpt2_124m"}, kIdentity,
           "GPT-2's architecture in one of these sizes; every field below that is set overrides the preset's.");
  t.OptInt("model.vocab", model.vocab, "auto", 2, kIdentity,
           PerPreset("Tokens that the model knows; at least those of the data",
                     [](const ModelShape& s) { return static_cast<double>(s.vocab); }),
           kMaxVocab);
  t.AutoIs([preset] { return nlohmann::json(preset().vocab); });
  t.OptInt("model.context", model.context, "auto", 1, kIdentity,
           PerPreset("Tokens that a prediction may see; a sample is a window of context + 1",
                     [](const ModelShape& s) { return static_cast<double>(s.context); }),
           65536);
  t.AutoIs([preset] { return nlohmann::json(preset().context); });
  t.OptInt("model.dim", model.dim, "auto", 1, kIdentity,
           PerPreset("Width of the residual stream; a multiple of model.heads",
                     [](const ModelShape& s) { return static_cast<double>(s.dim); }),
           65536);
  t.AutoIs([preset] { return nlohmann::json(preset().dim); });
  t.OptInt("model.layers", model.layers, "auto", 1, kIdentity,
           PerPreset("Transformer layers", [](const ModelShape& s) { return static_cast<double>(s.layers); }), 1024);
  t.AutoIs([preset] { return nlohmann::json(preset().layers); });
  t.OptInt("model.heads", model.heads, "auto", 1, kIdentity,
           PerPreset("Attention heads", [](const ModelShape& s) { return static_cast<double>(s.heads); }), 1024);
  t.AutoIs([preset] { return nlohmann::json(preset().heads); });
  t.OptNumber("model.dropout", model.dropout, "auto", 0, 0.99, kIdentity,
              PerPreset("Dropout probability of embeddings, attention and residual branches",
                        [](const ModelShape& s) { return s.dropout; }));
  t.AutoIs([preset] { return nlohmann::json(preset().dropout); });
  t.Number("data.test_fraction", test_fraction, 0, 0.9, kIdentity,
           "The share of the tokens, at their end, that is held out for evaluation; 0 only with data.test_shard.");
  t.Text("data.test_shard", test_shard, kIdentity,
         "The file of data.path that is held out instead; empty: data.test_fraction decides.");
}

void Options::Check(const Config&) const {
  const ModelShape s = shape();
  if (s.dim % s.heads != 0)
    throw ConfigError(Format("model.dim: %lld is not a multiple of model.heads %lld", static_cast<long long>(s.dim),
                             static_cast<long long>(s.heads)));
  if (test_fraction == 0 && test_shard.empty())
    throw ConfigError(
        "data.test_fraction: 0 holds nothing out, and an evaluation needs some; name data.test_shard, or "
        "a fraction above 0");
}

std::string Options::Describe() const {
  const ModelShape s = shape();
  return Format("GPT-2 %s: %lld layers of width %lld, %lld heads, context %lld, vocabulary %lld", model.preset.c_str(),
                static_cast<long long>(s.layers), static_cast<long long>(s.dim), static_cast<long long>(s.heads),
                static_cast<long long>(s.context), static_cast<long long>(s.vocab));
}

std::vector<Metric> Options::Metrics() const {
  return {{"test/loss", Better::kLower}, {"test/perplexity", Better::kLower}};
}

ModelShape Options::shape() const {
  const ModelShape& preset = kPresets.at(model.preset);
  return {.vocab = model.vocab.value_or(preset.vocab),
          .context = model.context.value_or(preset.context),
          .dim = model.dim.value_or(preset.dim),
          .layers = model.layers.value_or(preset.layers),
          .heads = model.heads.value_or(preset.heads),
          .dropout = model.dropout.value_or(preset.dropout)};
}

std::shared_ptr<TaskOptions> MakeOptions() { return std::make_shared<Options>(); }

const Options& OptionsOf(const Config& config) { return dynamic_cast<const Options&>(*config.task.options); }

}  // namespace trainyard::lm
