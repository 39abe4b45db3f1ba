#include "trainer/task/algorithm_distillation/distillation_evaluation.h"

#include <ATen/core/grad_mode.h>
#include <ATen/ops/cross_entropy_loss.h>

#include <algorithm>

#include "trainer/data/sample_stream.h"
#include "trainer/task/algorithm_distillation/distillation_batch.h"

namespace trainyard::ad {
namespace {

constexpr int64_t kWindowsPerItem = 16;
constexpr int kSlotsPerItem = 6;  // loss, correct, count of actions; the same of token types

class HistoryEvaluation : public Evaluation {
 public:
  explicit HistoryEvaluation(const EvaluationSetup& setup)
      : model_(setup.model),
        weights_(setup.weights),
        windows_(setup.windows),
        compressed_(OptionsOf(setup.config).mode == "compressed"),
        rank_(setup.rank),
        world_(setup.world) {
    // A fixed choice, spread over all windows.
    const int64_t count = std::min(OptionsOf(setup.config).eval_windows, windows_.size());
    const Permutation order(static_cast<uint64_t>(windows_.size()), HashKey(0, NameKey("evaluation windows")));
    for (int64_t i = 0; i < count; ++i) ids_.push_back(static_cast<int64_t>(order(static_cast<uint64_t>(i))));
    slots_.assign(static_cast<size_t>(num_items() * kSlotsPerItem), 0);
  }

  int num_chunks() const override { return static_cast<int>((num_items() + world_ - 1) / world_); }

  void RunChunk(int chunk) override {
    const int64_t item = int64_t{chunk} * world_ + rank_;
    if (item >= num_items()) return;
    const c10::InferenceMode inference;
    const int64_t begin = item * kWindowsPerItem,
                  end = std::min<int64_t>(begin + kWindowsPerItem, static_cast<int64_t>(ids_.size()));
    std::vector<Window> windows;
    for (int64_t i = begin; i < end; ++i) windows.push_back(windows_.at(ids_[static_cast<size_t>(i)]));
    DistillationBatch batch;
    FillBatch(windows, batch);
    const Pass pass = Pass::Evaluation(weights_);
    const TransformerOutput output = model_.Forward(pass, batch.input);
    const Score action = ScoreOf(output.actions, pass.Upload(batch.actions));
    const Score type = compressed_ ? ScoreOf(output.types, pass.Upload(batch.types)) : Score{};
    double* slot = slots_.data() + item * kSlotsPerItem;
    for (double value : {action.loss, action.correct, action.count, type.loss, type.correct, type.count})
      *slot++ = value;
  }

  std::vector<double>& slots() override { return slots_; }

  std::map<std::string, double> Metrics() const override {
    double sum[kSlotsPerItem] = {};
    for (size_t i = 0; i < slots_.size(); ++i) sum[i % kSlotsPerItem] += slots_[i];
    std::map<std::string, double> metrics = {{"test/loss_action", sum[0] / sum[2]},
                                             {"test/acc_action", sum[1] / sum[2]}};
    if (compressed_) {
      metrics["test/loss_token_type"] = sum[3] / sum[5];
      metrics["test/acc_token_type"] = sum[4] / sum[5];
    }
    return metrics;
  }

 private:
  int64_t num_items() const { return (static_cast<int64_t>(ids_.size()) + kWindowsPerItem - 1) / kWindowsPerItem; }

  const Transformer& model_;
  Weights& weights_;
  const Windows& windows_;
  bool compressed_;
  int rank_, world_;
  std::vector<int64_t> ids_;
  std::vector<double> slots_;
};

}  // namespace

Score ScoreOf(const at::Tensor& logits, const at::Tensor& targets) {
  const at::Tensor flat = logits.reshape({-1, logits.size(-1)}), wanted = targets.reshape({-1});
  const at::Tensor counts = wanted.ne(kIgnored);
  Score score;
  score.loss = at::cross_entropy_loss(flat, wanted, {}, at::Reduction::Sum, kIgnored).item<double>();
  score.correct = flat.argmax(-1).eq(wanted).sum().item<double>();
  score.count = counts.sum().item<double>();
  return score;
}

std::unique_ptr<Evaluation> MakeHistoryEvaluation(const EvaluationSetup& setup) {
  return std::make_unique<HistoryEvaluation>(setup);
}

}  // namespace trainyard::ad
