// What was earned in many independent plays of the held-out tasks, and what follows from it.
#ifndef TRAINYARD_TRAINER_TASK_ALGORITHM_DISTILLATION_PLAY_RETURNS_H_
#define TRAINYARD_TRAINER_TASK_ALGORITHM_DISTILLATION_PLAY_RETURNS_H_

#include <span>
#include <vector>

#include "trainer/base/statistics.h"

namespace trainyard::ad {

// Returns of (goal, play, episode), in this order in memory. A play is one history: its episodes
// depend on each other, plays do not. So a play counts as one value, the mean over its last episodes.
class PlayReturns {
 public:
  // `values` must outlive it. REQUIRES: goals x plays x episodes values, each factor positive.
  PlayReturns(std::span<const double> values, int goals, int plays, int episodes);

  int goals() const { return goals_; }
  int plays() const { return plays_; }
  int last() const { return last_; }  // episodes at the end that count: 10, or all when there are fewer

  // Mean return of a goal's last episodes, with its interval over plays.
  MeanEstimate LastOfGoal(int goal) const;
  // The same for the mean over goals. The goals are fixed, not drawn: what they differ by is no error.
  MeanEstimate LastOverGoals() const;
  // By episode, the mean over goals and plays.
  std::vector<double> Curve() const;

 private:
  double LastOfPlay(int goal, int play) const;
  const double* Play(int goal, int play) const;

  std::span<const double> values_;
  int goals_, plays_, episodes_, last_;
};

}  // namespace trainyard::ad

#endif  // TRAINYARD_TRAINER_TASK_ALGORITHM_DISTILLATION_PLAY_RETURNS_H_
