#include "trainer/task/algorithm_distillation/play_returns.h"

#include <algorithm>
#include <numeric>

namespace trainyard::ad {

PlayReturns::PlayReturns(std::span<const double> values, int goals, int plays, int episodes)
    : values_(values), goals_(goals), plays_(plays), episodes_(episodes), last_(std::min(10, episodes)) {}

const double* PlayReturns::Play(int goal, int play) const {
  return values_.data() + (static_cast<int64_t>(goal) * plays_ + play) * episodes_;
}

double PlayReturns::LastOfPlay(int goal, int play) const {
  const double* end = Play(goal, play) + episodes_;
  return std::accumulate(end - last_, end, 0.0) / last_;
}

MeanEstimate PlayReturns::LastOfGoal(int goal) const {
  std::vector<double> means;
  for (int play = 0; play < plays_; ++play) means.push_back(LastOfPlay(goal, play));
  return EstimateMean(means);
}

MeanEstimate PlayReturns::LastOverGoals() const {
  std::vector<double> means(static_cast<size_t>(plays_), 0);
  for (int play = 0; play < plays_; ++play) {
    for (int goal = 0; goal < goals_; ++goal) means[static_cast<size_t>(play)] += LastOfPlay(goal, play) / goals_;
  }
  return EstimateMean(means);
}

std::vector<double> PlayReturns::Curve() const {
  std::vector<double> curve(static_cast<size_t>(episodes_), 0);
  for (int goal = 0; goal < goals_; ++goal) {
    for (int play = 0; play < plays_; ++play) {
      for (size_t e = 0; e < curve.size(); ++e) curve[e] += Play(goal, play)[e] / goals_ / plays_;
    }
  }
  return curve;
}

}  // namespace trainyard::ad
