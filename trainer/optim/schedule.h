// Learning rates as pure functions of the step.
#ifndef TRAINYARD_TRAINER_OPTIM_SCHEDULE_H_
#define TRAINYARD_TRAINER_OPTIM_SCHEDULE_H_

#include <cstdint>
#include <limits>

#include "trainer/config/config.h"

namespace trainyard {

// The rate for the optimizer step after `step` finished ones, 0 <= step; from `total` on it is what it ends with.
//   constant, cosine, linear: rise as step / warmup to `peak`; then stay, or fall to min_lr at
//     `total` along half a cosine (Loshchilov and Hutter, arXiv 1608.03983) or a line.
//   onecycle: torch.optim.lr_scheduler.OneCycleLR with cosine annealing and two phases.
//   plateau: constant after the warm-up; Plateau's factor multiplies it.
double LearningRate(const ScheduleConfig& schedule, double peak, int64_t step, int64_t total);

// torch.optim.lr_scheduler.ReduceLROnPlateau (mode min, relative threshold 1e-4): lowers the rate
// when a metric has not improved for more than `patience` evaluations. One that is no number has not: `best` is never
// NaN.
struct Plateau {
  double multiplier = 1;
  double best = std::numeric_limits<double>::infinity();
  int64_t bad = 0;
  void Update(const ScheduleConfig& schedule, double metric);
};

// Ends a run whose metric (smaller is better) has stopped improving. `best` is never NaN.
struct EarlyStop {
  double best = std::numeric_limits<double>::infinity();
  int64_t bad = 0;
  // Returns true when training should end.
  bool Update(const EarlyStopConfig& config, double metric);
};

// Peak rate for a world size: none, x world, x sqrt(world).
double ScaledRate(const OptimConfig& optim, int world);

}  // namespace trainyard

#endif  // TRAINYARD_TRAINER_OPTIM_SCHEDULE_H_
