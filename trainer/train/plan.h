// What is decided before training starts, from the configuration, the data and the world.
#ifndef TRAINYARD_TRAINER_TRAIN_PLAN_H_
#define TRAINYARD_TRAINER_TRAIN_PLAN_H_

#include <cstdint>
#include <string>

#include "trainer/config/config.h"
#include "trainer/data/sample_stream.h"
#include "trainer/parallel/flat_layout.h"
#include "trainer/parallel/memory_plan.h"
#include "trainer/task/task.h"

namespace trainyard {

struct Plan {
  int world = 1;
  int64_t global_batch = 0;  // samples of a step
  int64_t micro = 0;         // most samples of one forward
  int64_t accumulation = 0;  // micro-batches of the rank that has most
  int64_t total_steps = 0;
  int64_t schedule_steps = 0;  // of the stage: what schedules run over
  int64_t epoch_samples = 0;   // what an epoch trains on; epochs follow each other without a gap
  ParallelShape parallel;
  double peak_lr = 0;

  // A rank's samples of a step, as places in the global batch. Shares differ by one sample at most, so any world size
  // runs any global batch; one may be empty.
  Range ShareOf(int rank) const;
};

// What precision.compute means on this machine.
Precision PrecisionOf(const Config& config);

// What parallel means for `world` ranks.
ParallelShape ShapeOf(const Config& config, int world);
const char* NameOf(ZeroStage stage);
const char* NameOf(Precision precision);

// `resumed_global` is the batch of the checkpoint that training goes on from, or 0; an auto batch is
// resolved once and then kept. Throws ConfigError naming the numbers that do not fit together.
Plan MakePlan(const Config& config, const Task& task, int world, int64_t resumed_global);

// Throws OutOfMemoryError when `ranks` ranks of this machine together need more for their models than
// there is; nothing is allocated. Less may still be too little: activations are not counted. `moment` says when that
// is; may be empty.
void RequireMemory(const MemoryPlan& of_a_rank, const std::string& moment, int64_t num_parameters, int ranks);

// The banner: everything decided, one line each.
std::string Describe(const Plan& plan, const Config& config, int64_t num_parameters, int64_t num_samples);

}  // namespace trainyard

#endif  // TRAINYARD_TRAINER_TRAIN_PLAN_H_
