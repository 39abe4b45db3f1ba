// The source algorithms whose learning histories are distilled. Each is a pure function of its
// arguments: the same seed gives the same history on any machine and any number of threads.
#ifndef TRAINYARD_TRAINER_TASK_ALGORITHM_DISTILLATION_SOURCES_H_
#define TRAINYARD_TRAINER_TASK_ALGORITHM_DISTILLATION_SOURCES_H_

#include <cstdint>
#include <functional>

#include "trainer/task/algorithm_distillation/dark_room.h"
#include "trainer/task/algorithm_distillation/histories.h"

namespace trainyard::ad {

// Steps between two updates of a learner; the regions of compressed mode.
constexpr int kRolloutSteps = 80;

// What marks step t: 1 the first, 2 the last of each kRolloutSteps.
constexpr uint8_t MarkerAt(int64_t t) {
  if (t % kRolloutSteps == 0) return 1;
  return t % kRolloutSteps == kRolloutSteps - 1 ? 2 : 0;
}

// Told how many steps have been played, in every stream, since it was told last.
using StepsPlayed = std::function<void(int64_t)>;

// Each writes histories.at(task, stream) for every stream. `seed` is the set's; the draws are
// keyed by (seed, source, task, stream). `played` hears of all histories.length() steps.

// One Q table learnt from all streams together: alpha .1, gamma .9, three passes over the new
// transitions every 80 steps, epsilon from 1 to 0 over the first 70 % of the steps. At least 50
// streams are played; the first histories.streams() are kept.
void SharedTableQ(const DarkRoom& room, int64_t task, uint64_t seed, Histories& histories, const StepsPlayed& played);

// The optimal policy with a share of random actions that falls from 1 to 0 over the first 90 % of
// the steps (Zisman et al., arXiv 2312.12275).
void AdEpsilon(const DarkRoom& room, int64_t task, uint64_t seed, Histories& histories, const StepsPlayed& played);

// Proximal policy optimisation (Schulman et al., arXiv 1707.06347) with the settings of the
// original's data: 80 steps a rollout, minibatches of 40, 20 epochs, rate 3e-4, clip .2, lambda .95,
// gamma .99, one 64-64 tanh network each for policy and value, all streams in one learner.
void Ppo(const DarkRoom& room, int64_t task, uint64_t seed, Histories& histories, const StepsPlayed& played);

}  // namespace trainyard::ad

#endif  // TRAINYARD_TRAINER_TASK_ALGORITHM_DISTILLATION_SOURCES_H_
