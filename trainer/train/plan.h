// What is decided before training starts, from the configuration, the data and the world.
#ifndef TRAINYARD_TRAINER_TRAIN_PLAN_H_
#define TRAINYARD_TRAINER_TRAIN_PLAN_H_

#include <cstdint>
#include <optional>
#include <string>
#include <utility>

#include "trainer/config/config.h"
#include "trainer/data/sample_stream.h"
#include "trainer/launch/world.h"
#include "trainer/parallel/flat_layout.h"
#include "trainer/parallel/memory_plan.h"
#include "trainer/task/task.h"
#include "trainer/train/decisions.h"

namespace trainyard {

struct Plan {
  int world = 1;
  int64_t global_batch = 0;  // samples of a step
  int64_t micro = 0;         // most samples of one forward
  int64_t accumulation = 0;  // micro-batches of the rank that has most
  int64_t total_steps = 0;
  int64_t schedule_steps = 0;  // of the stage: what schedules run over
  int stage = 0;               // its number, from 0
  int64_t epoch_samples = 0;   // what an epoch trains on; epochs follow each other without a gap
  // The order's items of an epoch (N), and how many of them are others in the next one (R): SmartCache's window.
  int64_t window = 0, window_replaced = 0;
  ParallelShape parallel;
  int lr_world = 1;  // ranks that optim.lr_scaling counts: those of the run's first attempt
  double peak_lr = 0;

  // A rank's samples of a step, as places in the global batch. Shares differ by one sample at most, so any world size
  // runs any global batch; one may be empty.
  Range ShareOf(int rank) const;
};

// What precision.compute means: auto is fp32 (of a resolved configuration it is no value; decisions.h).
Precision PrecisionOf(const Config& config);

// What parallel means for `world` ranks; auto is ddp, as above.
ParallelShape ShapeOf(const Config& config, int world);
const char* NameOf(ZeroStage stage);
const char* NameOf(Precision precision);

// What is decided from, as it was when this process started.
struct Grounds {
  Config given;  // not resolved
  World world;
  Hardware hardware;
  std::string omp_num_threads;
};
Grounds GroundsHere(const Config& given, const World& world);

// Before the data is read: all but the batch is as it will be.
Decisions DecideWithoutData(const Grounds& grounds);
// `resumed_global` is the batch of the checkpoint that training goes on from, or 0; an auto batch is resolved once and
// then kept.
Decisions DecideFor(const Grounds& grounds, const Task& task, int64_t resumed_global);

// `order`: what epochs are made of. Throws ConfigError naming the numbers that do not fit together.
Plan MakePlan(const Config& config, const Decisions& decisions, const Order& order);

// The window is a pure function of configuration and data; a program that makes another one of them must not go on with
// a checkpoint's place in it. `saved`: N and R, where the checkpoint says them. Throws ConfigError.
void RequireSameWindow(const Plan& plan, const std::optional<std::pair<int64_t, int64_t>>& saved);

// The banner: everything decided, one line each.
std::string Describe(const Plan& plan, const Config& config, int64_t num_parameters, int64_t num_samples);

}  // namespace trainyard

#endif  // TRAINYARD_TRAINER_TRAIN_PLAN_H_
