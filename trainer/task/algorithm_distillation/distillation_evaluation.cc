#include "trainer/task/algorithm_distillation/distillation_evaluation.h"

#include <ATen/core/grad_mode.h>
#include <ATen/ops/cross_entropy_loss.h>

#include <algorithm>
#include <cmath>
#include <numeric>

#include "trainer/base/text.h"
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
    DropoutKeys no_dropout(0, 0);
    const TransformerOutput output = model_.Forward(batch.input, no_dropout);
    const Score action = ScoreOf(output.actions, batch.actions);
    const Score type = compressed_ ? ScoreOf(output.types, batch.types) : Score{};
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
  const Windows& windows_;
  bool compressed_;
  int rank_, world_;
  std::vector<int64_t> ids_;
  std::vector<double> slots_;
};

struct Interval {
  double mean, half;  // mean +- half holds with 95 %
};

// Student's t over independent values.
Interval MeanInterval(std::span<const double> values) {
  static constexpr double kT[] = {0, 12.706, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262};
  const auto n = static_cast<double>(values.size());
  const double mean = std::accumulate(values.begin(), values.end(), 0.0) / n;
  double square = 0;
  for (double x : values) square += (x - mean) * (x - mean);
  if (values.size() < 2) return {mean, 0};
  const double t = values.size() <= 10 ? kT[values.size() - 1] : 1.96;
  return {mean, t * std::sqrt(square / (n - 1) / n)};
}

class InContextEvaluation : public Evaluation {
 public:
  explicit InContextEvaluation(const EvaluationSetup& setup)
      : history_(setup),
        set_(setup.set),
        episodes_(static_cast<int>(OptionsOf(setup.config).eval_episodes)),
        rank_(setup.rank),
        world_(setup.world) {
    std::vector<DarkRoom> rooms;
    std::vector<int> ids;
    for (size_t g = static_cast<size_t>(rank_); g < set_.test.size(); g += static_cast<size_t>(world_)) {
      ids.push_back(set_.test[g]);
      rooms.push_back(set_.tasks[static_cast<size_t>(ids.back())]);
    }
    PlayerOptions options{.compressed = OptionsOf(setup.config).mode == "compressed",
                          .max_transitions = OptionsOf(setup.config).model.context - 1,
                          .seed = static_cast<uint64_t>(setup.config.run.seed)};
    player_ = std::make_unique<Player>(setup.model, rooms, ids, options);
    options.history = false;
    control_ = std::make_unique<Player>(setup.model, rooms, ids, options);
    slots_.assign(history_.slots().size() + 2 * set_.test.size() * static_cast<size_t>(episodes_), 0);
  }

  int num_chunks() const override { return history_.num_chunks() + episodes_; }

  void RunChunk(int chunk) override {
    if (chunk < history_.num_chunks()) {
      history_.RunChunk(chunk);
      std::copy(history_.slots().begin(), history_.slots().end(), slots_.begin());
      return;
    }
    const int episode = chunk - history_.num_chunks();
    const std::vector<double> returns = player_->PlayEpisode(), control = control_->PlayEpisode();
    for (size_t i = 0; i < returns.size(); ++i) {
      const size_t goal = i * static_cast<size_t>(world_) + static_cast<size_t>(rank_);
      slots_[Slot(0, goal, episode)] = returns[i];
      slots_[Slot(1, goal, episode)] = control[i];
    }
  }

  std::vector<double>& slots() override { return slots_; }

  std::map<std::string, double> Metrics() const override {
    // The first slots are those of the history evaluation, now summed over ranks.
    HistoryEvaluation summed = history_;
    std::copy_n(slots_.begin(), summed.slots().size(), summed.slots().begin());
    std::map<std::string, double> metrics = summed.Metrics();
    const std::vector<double> curve = Curve(0), control = Curve(1);
    auto mean = [](std::span<const double> x) {
      return x.empty() ? 0 : std::accumulate(x.begin(), x.end(), 0.0) / static_cast<double>(x.size());
    };
    const size_t ten = std::min<size_t>(10, curve.size());
    metrics["test/return_first10"] = mean(std::span(curve).first(ten));
    metrics["test/return_last10"] = mean(std::span(curve).last(ten));
    metrics["test/return_mean"] = mean(curve);
    metrics["test/return_no_history"] = mean(control);
    for (size_t e = 0; e < curve.size(); ++e) metrics[Format("curve/return_episode_%03zu", e)] = curve[e];
    return metrics;
  }

  std::string Table() const override {
    std::string text = Format("%-8s %20s %9s %8s %12s\n", "goal", "return, last 10", "optimum", "random", "no history");
    std::vector<double> all(static_cast<size_t>(Last()), 0);
    double optimum = 0, random = 0, none = 0;
    const auto goals = static_cast<double>(set_.test.size());
    for (size_t g = 0; g < set_.test.size(); ++g) {
      const DarkRoom& room = set_.tasks[static_cast<size_t>(set_.test[g])];
      const Interval played = MeanInterval(LastOf(0, g)), control = MeanInterval(Of(1, g));
      const std::string name = room.meaning == DarkRoom{}.meaning ? Format("(%d,%d)", room.goal.row, room.goal.column)
                                                                  : Format("perm %d", set_.test[g]);
      text += Format("%-8s %11.2f +- %5.2f %9.2f %8.2f %12.2f\n", name.c_str(), played.mean, played.half,
                     room.OptimalReturn(), RandomReturn(room), control.mean);
      for (size_t i = 0; i < all.size(); ++i) all[i] += LastOf(0, g)[i] / goals;
      optimum += room.OptimalReturn() / goals;
      random += RandomReturn(room) / goals;
      none += control.mean / goals;
    }
    const Interval mean = MeanInterval(all);
    return text +
           Format("%-8s %11.2f +- %5.2f %9.2f %8.2f %12.2f\n", "mean", mean.mean, mean.half, optimum, random, none);
  }

 private:
  size_t Slot(int kind, size_t goal, int episode) const {
    return history_size() + (static_cast<size_t>(kind) * set_.test.size() + goal) * static_cast<size_t>(episodes_) +
           static_cast<size_t>(episode);
  }
  size_t history_size() const { return slots_.size() - 2 * set_.test.size() * static_cast<size_t>(episodes_); }
  int Last() const { return std::min(10, episodes_); }
  std::span<const double> Of(int kind, size_t goal) const {
    return std::span(slots_).subspan(Slot(kind, goal, 0), static_cast<size_t>(episodes_));
  }
  std::span<const double> LastOf(int kind, size_t goal) const {
    return Of(kind, goal).last(static_cast<size_t>(Last()));
  }
  std::vector<double> Curve(int kind) const {
    std::vector<double> curve(static_cast<size_t>(episodes_), 0);
    for (size_t g = 0; g < set_.test.size(); ++g) {
      for (size_t e = 0; e < curve.size(); ++e) curve[e] += Of(kind, g)[e] / static_cast<double>(set_.test.size());
    }
    return curve;
  }

  HistoryEvaluation history_;
  const TaskSet& set_;
  int episodes_, rank_, world_;
  std::unique_ptr<Player> player_, control_;
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
std::unique_ptr<Evaluation> MakeInContextEvaluation(const EvaluationSetup& setup) {
  return std::make_unique<InContextEvaluation>(setup);
}

}  // namespace trainyard::ad
