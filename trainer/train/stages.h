// The stages of a run as spans of its steps.
#ifndef TRAINYARD_TRAINER_TRAIN_STAGES_H_
#define TRAINYARD_TRAINER_TRAIN_STAGES_H_

#include <cstdint>
#include <string>
#include <vector>

#include "trainer/comm/communicator.h"
#include "trainer/parallel/engine.h"
#include "trainer/task/task.h"
#include "trainer/train/plan.h"

namespace trainyard {

struct StageRun {
  Stage stage;
  int64_t first = 0, end = 0;  // its steps, counted over the run
  Config config;               // the job's, with what the stage overrides
  Plan plan;                   // the job's, with the stage's schedule
  std::string best_dir;        // where the weights of its best evaluation go
};

// Throws ConfigError when the stages' steps do not make up those of the plan, or when one starts from the best weights
// of another and checkpoint.keep_best names no metric.
std::vector<StageRun> PlanStages(const Config& config, const Plan& plan, const Task& task);

// Gives the next stage's engine the values of the last one's: parameters and buffers, not the moments. `best_dir`:
// where the last stage's best weights lie, which it takes instead, or empty; rank 0 reads them. All ranks call it.
// Throws StorageError on rank 0, PeerError elsewhere, when those of `best_step` are not there.
void HandOver(Engine& from, Engine& to, const std::string& best_dir, int64_t best_step, Communicator& communicator);

}  // namespace trainyard

#endif  // TRAINYARD_TRAINER_TRAIN_STAGES_H_
