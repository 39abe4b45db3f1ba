#include "trainer/task/language_model/loss_evaluation.h"

#include <ATen/core/grad_mode.h>

#include <algorithm>
#include <cmath>
#include <vector>

#include "trainer/base/text.h"
#include "trainer/task/language_model/language_batch.h"

namespace trainyard::lm {
namespace {

constexpr int64_t kTokensPerItem = 4096;
constexpr int kSlotsPerItem = 2;  // sum of losses, number of tokens

class LossEvaluation : public Evaluation {
 public:
  explicit LossEvaluation(const EvaluationSetup& setup)
      : setup_(setup),
        count_(std::min(setup.limit.value_or(setup.windows.size()), setup.windows.size())),
        per_item_(std::max<int64_t>(1, kTokensPerItem / setup.windows.context())) {
    slots_.assign(static_cast<size_t>(num_items() * kSlotsPerItem), 0);
  }

  int num_chunks() const override { return static_cast<int>((num_items() + setup_.world - 1) / setup_.world); }

  void RunChunk(int chunk) override {
    const int64_t item = int64_t{chunk} * setup_.world + setup_.rank;
    if (item >= num_items()) return;
    const c10::InferenceMode inference;
    const int64_t begin = item * per_item_, end = std::min(begin + per_item_, count_);
    std::vector<std::vector<Token>> read;
    for (int64_t i = begin; i < end; ++i) read.push_back(setup_.windows.Read(WindowAt(i)));
    const std::vector<std::span<const Token>> windows(read.begin(), read.end());
    LanguageBatch batch;
    FillBatch(windows, setup_.windows.context(), batch);
    const Pass pass = Pass::Evaluation(setup_.weights);
    const at::Tensor loss =
        setup_.model.SumOfLosses(pass, pass.Upload(batch.tokens), pass.Upload(batch.targets), kIgnored);
    slots_[static_cast<size_t>(item * kSlotsPerItem)] = loss.item<double>();
    slots_[static_cast<size_t>(item * kSlotsPerItem + 1)] = batch.denominators[0];
  }

  std::vector<double>& slots() override { return slots_; }

  std::map<std::string, double> Metrics() const override {
    const double loss = Loss();
    std::map<std::string, double> metrics = {{"test/loss", loss}, {"test/perplexity", std::exp(loss)}};
    if (setup_.truth) metrics["test/above_entropy_rate"] = loss - setup_.truth->entropy_rate;
    return metrics;
  }

  std::string Table() const override {
    if (!setup_.truth) return "";
    const double loss = Loss(), rate = setup_.truth->entropy_rate;
    return Format("loss on held-out text %.4f nats per token, the source's entropy rate %.4f: %.4f above it\n", loss,
                  rate, loss - rate);
  }

 private:
  int64_t num_items() const { return (count_ + per_item_ - 1) / per_item_; }
  int64_t WindowAt(int64_t i) const {
    return static_cast<int64_t>(static_cast<__int128>(i) * setup_.windows.size() / count_);
  }
  double Loss() const {
    double sum = 0, tokens = 0;
    for (size_t i = 0; i < slots_.size(); i += kSlotsPerItem) {
      sum += slots_[i];
      tokens += slots_[i + 1];
    }
    return sum / tokens;
  }

  EvaluationSetup setup_;
  int64_t count_, per_item_;
  std::vector<double> slots_;
};

}  // namespace

std::unique_ptr<Evaluation> MakeLossEvaluation(const EvaluationSetup& setup) {
  return std::make_unique<LossEvaluation>(setup);
}

}  // namespace trainyard::lm
