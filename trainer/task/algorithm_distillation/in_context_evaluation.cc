#include <algorithm>
#include <numeric>

#include "trainer/base/text.h"
#include "trainer/task/algorithm_distillation/distillation_evaluation.h"
#include "trainer/task/algorithm_distillation/play_returns.h"

namespace trainyard::ad {
namespace {

// Seats that play together: the same for every world size, so that a seat's products have the same
// shape, and its probabilities the same bits, wherever it is played.
constexpr int kSeatsPerTable = 16;

double Mean(std::span<const double> x) {
  return std::accumulate(x.begin(), x.end(), 0.0) / static_cast<double>(x.size());
}

std::string NameOf(const TaskSet& set, int task) {
  const DarkRoom& room = set.tasks[static_cast<size_t>(task)];
  if (room.meaning != DarkRoom{}.meaning) return Format("perm %d", task);
  return Format("(%d,%d)", room.goal.row, room.goal.column);
}

std::string PlusMinus(const MeanEstimate& estimate) {
  return Format("%.2f +- ", estimate.mean) +
         (estimate.half95 ? Format("%5.2f", *estimate.half95) : std::string("    ?"));
}

// Slots: those of the history evaluation; returns by (goal, play, episode); the control's by goal.
class InContextEvaluation : public Evaluation {
 public:
  explicit InContextEvaluation(const EvaluationSetup& setup)
      : history_(MakeHistoryEvaluation(setup)),
        model_(setup.model),
        weights_(setup.weights),
        set_(setup.set),
        options_{.compressed = OptionsOf(setup.config).mode == "compressed",
                 .max_transitions = OptionsOf(setup.config).model.context - 1,
                 .seed = static_cast<uint64_t>(setup.config.run.seed)},
        plays_(static_cast<int>(OptionsOf(setup.config).eval_plays)),
        episodes_(static_cast<int>(OptionsOf(setup.config).eval_episodes)),
        rank_(setup.rank),
        world_(setup.world) {
    slots_.assign(history_->slots().size() + num_seats() * static_cast<size_t>(episodes_) + set_.test.size(), 0);
  }

  int num_chunks() const override {
    const auto tables = static_cast<int>((num_seats() + kSeatsPerTable - 1) / kSeatsPerTable);
    return history_->num_chunks() + (tables + world_ - 1) / world_ * episodes_;
  }

  void RunChunk(int chunk) override {
    if (chunk < history_->num_chunks()) {
      history_->RunChunk(chunk);
      std::copy(history_->slots().begin(), history_->slots().end(), slots_.begin());
      if (chunk == 0 && rank_ == 0) FillControl();
      return;
    }
    const int turn = (chunk - history_->num_chunks()) / episodes_,
              episode = (chunk - history_->num_chunks()) % episodes_;
    const size_t first = static_cast<size_t>(turn * world_ + rank_) * kSeatsPerTable;
    if (first >= num_seats()) return;
    if (episode == 0) Sit(first);
    const std::vector<double> returns = player_->PlayEpisode();
    for (size_t i = 0; i < returns.size(); ++i)
      Returns()[(first + i) * static_cast<size_t>(episodes_) + static_cast<size_t>(episode)] = returns[i];
  }

  std::vector<double>& slots() override { return slots_; }

  std::map<std::string, double> Metrics() const override {
    // The first slots are those of the history evaluation, now summed over ranks.
    std::copy_n(slots_.begin(), history_->slots().size(), history_->slots().begin());
    std::map<std::string, double> metrics = history_->Metrics();
    const PlayReturns played = Played();
    const std::vector<double> curve = played.Curve();
    const MeanEstimate last = played.LastOverGoals();
    metrics["test/return_first10"] = Mean(std::span(curve).first(static_cast<size_t>(played.last())));
    metrics["test/return_last10"] = last.mean;
    if (last.standard_error) metrics["test/return_last10_stderr"] = *last.standard_error;
    metrics["test/return_mean"] = Mean(curve);
    metrics["test/return_no_history"] = Mean(Control());
    return metrics;
  }

  std::vector<EventContent> Artifacts() const override {
    Curve curve{"test/return_by_episode", {}, Played().Curve()};
    for (size_t e = 1; e <= curve.y.size(); ++e) curve.x.push_back(static_cast<double>(e));
    return {std::move(curve)};
  }

  std::string Table() const override {
    const PlayReturns played = Played();
    std::string text = Format("%-8s %20s %9s %8s %12s\n", "goal", Format("return, last %d", played.last()).c_str(),
                              "optimum", "random", "no history");
    auto line = [&](const std::string& name, const MeanEstimate& estimate, double optimum, double random,
                    double control) {
      text +=
          Format("%-8s %20s %9.2f %8.2f %12.2f\n", name.c_str(), PlusMinus(estimate).c_str(), optimum, random, control);
    };
    double optimum = 0, random = 0;
    for (size_t g = 0; g < set_.test.size(); ++g) {
      const DarkRoom& room = set_.tasks[static_cast<size_t>(set_.test[g])];
      line(NameOf(set_, set_.test[g]), played.LastOfGoal(static_cast<int>(g)), room.OptimalReturn(), RandomReturn(room),
           Control()[g]);
      optimum += room.OptimalReturn();
      random += RandomReturn(room);
    }
    const auto goals = static_cast<double>(set_.test.size());
    line("mean", played.LastOverGoals(), optimum / goals, random / goals, Mean(Control()));
    return text +
           Format("+- is a 95 %% interval over %d independent play%s of each goal\n", plays_, plays_ == 1 ? "" : "s");
  }

 private:
  size_t num_seats() const { return set_.test.size() * static_cast<size_t>(plays_); }

  // A table takes its seats: number s is play s % plays of goal s / plays.
  void Sit(size_t first) {
    std::vector<SeatId> seats;
    for (size_t s = first; s < std::min(first + kSeatsPerTable, num_seats()); ++s) {
      const auto plays = static_cast<size_t>(plays_);
      seats.push_back({set_.test[s / plays], static_cast<int>(s % plays)});
    }
    player_ = std::make_unique<Player>(model_, weights_, set_.tasks, seats, options_);
  }

  // Without history the policy has no memory, so its mean return is known exactly.
  void FillControl() {
    const Policy policy = PolicyWithoutHistory(model_, weights_, options_.compressed);
    for (size_t g = 0; g < set_.test.size(); ++g)
      slots_[slots_.size() - set_.test.size() + g] =
          ExpectedReturn(set_.tasks[static_cast<size_t>(set_.test[g])], policy);
  }

  std::span<double> Returns() {
    return std::span(slots_).subspan(history_->slots().size(), num_seats() * static_cast<size_t>(episodes_));
  }
  PlayReturns Played() const {
    const std::span<const double> returns =
        std::span(slots_).subspan(history_->slots().size(), num_seats() * static_cast<size_t>(episodes_));
    return {returns, static_cast<int>(set_.test.size()), plays_, episodes_};
  }
  std::span<const double> Control() const { return std::span(slots_).last(set_.test.size()); }

  std::unique_ptr<Evaluation> history_;
  const Transformer& model_;
  Weights& weights_;
  const TaskSet& set_;
  PlayerOptions options_;
  int plays_, episodes_, rank_, world_;
  std::unique_ptr<Player> player_;
  std::vector<double> slots_;
};

}  // namespace

std::unique_ptr<Evaluation> MakeInContextEvaluation(const EvaluationSetup& setup) {
  return std::make_unique<InContextEvaluation>(setup);
}

}  // namespace trainyard::ad
