#include "trainer/task/algorithm_distillation/options.h"

#include <nlohmann/json.hpp>

#include "trainer/base/error.h"
#include "trainer/base/text.h"

namespace trainyard::ad {
namespace {

constexpr auto kIdentity = FieldClass::kIdentity;
constexpr int64_t kCompressedContext = 164;  // two regions of 80 transitions and four tokens

}  // namespace

void Options::Declare(FieldTable& t) {
  t.Choice("task.env", env, {"darkroom", "darkroom_permuted"}, kIdentity,
           "The environment: one goal per task, or goal (8,8) and one of 120 action permutations per task.");
  t.Choice("task.mode", mode, {"standard", "compressed"}, kIdentity,
           "A sliding window of transitions, or the previous and the current region between compression tokens.");
  t.Choice("task.loss", loss, {"last_position", "every_position"}, kIdentity,
           "Predict the action after the whole window, or after every prefix of it.");
  t.Number("task.type_loss_weight", type_loss_weight, 0, FieldTable::kInfinity, kIdentity,
           "Weight of the token-type loss in compressed mode (the guide's commit used 0.1).");
  t.Int("task.max_transitions", max_transitions, 2, kIdentity, "Histories are cut to so many transitions.");
  t.Int("task.eval_windows", eval_windows, 1, FieldClass::kSchedule,
        "Windows of the held-out tasks in one evaluation of test loss and accuracy.");
  t.Int("task.eval_episodes", eval_episodes, 0, FieldClass::kFree,
        "Episodes of the in-context evaluation after the last step; 0 leaves it out.", 1 << 20);
  t.Int("task.eval_plays", eval_plays, 1, FieldClass::kFree,
        "Independent plays of so many episodes for each held-out goal; the table's interval is over them.", 4096);
  t.Int("model.context", model.context, 2, kIdentity,
        "Positions of the transformer: context - 1 transitions and the query in standard mode; at least 164 in "
        "compressed mode.",
        65536);
  t.Int("model.dim", model.dim, 1, kIdentity, "Width of the residual stream; a multiple of model.heads.", 65536);
  t.Int("model.layers", model.layers, 1, kIdentity, "Transformer layers.", 1024);
  t.Int("model.heads", model.heads, 1, kIdentity, "Attention heads.", 1024);
  t.OptInt("model.ffn", model.ffn, "auto", 1, kIdentity, "Width of the feed-forward layer; auto is 4 x dim.",
           int64_t{1} << 24);
  t.AutoIs([this] { return nlohmann::json(4 * model.dim); });
  t.Number("model.dropout", model.dropout, 0, 0.99, kIdentity,
           "Dropout probability, everywhere that the reference model has it.");
}

void Options::Check(const Config&) const {
  if (model.dim % model.heads != 0) {
    throw ConfigError(Format("model.dim: %lld is not a multiple of model.heads %lld", static_cast<long long>(model.dim),
                             static_cast<long long>(model.heads)));
  }
  if (mode == "compressed" && model.context < kCompressedContext) {
    throw ConfigError(Format(
        "model.context: %lld is not allowed; compressed mode needs at least %lld (two regions of 80 and four tokens)",
        static_cast<long long>(model.context), static_cast<long long>(kCompressedContext)));
  }
}

std::string Options::Describe() const { return mode + ", loss at " + loss; }

std::vector<Metric> Options::Metrics() const {
  std::vector<Metric> metrics = {{"test/loss_action", Better::kLower}, {"test/acc_action", Better::kHigher}};
  if (mode == "compressed") {
    metrics.push_back({"test/loss_token_type", Better::kLower});
    metrics.push_back({"test/acc_token_type", Better::kHigher});
  }
  return metrics;
}

std::shared_ptr<TaskOptions> MakeOptions() { return std::make_shared<Options>(); }

const Options& OptionsOf(const Config& config) { return dynamic_cast<const Options&>(*config.task.options); }

}  // namespace trainyard::ad
