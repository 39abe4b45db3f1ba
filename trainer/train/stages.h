// The stages of a run as spans of its steps.
#ifndef TRAINYARD_TRAINER_TRAIN_STAGES_H_
#define TRAINYARD_TRAINER_TRAIN_STAGES_H_

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "trainer/parallel/engine.h"
#include "trainer/task/stage.h"
#include "trainer/task/task.h"
#include "trainer/train/plan.h"
#include "trainer/train/train_state.h"

namespace trainyard {

struct StageRun {
  Stage stage;
  int64_t first = 0, end = 0;  // its steps, counted over the run
  Config config;               // the job's, with what the stage overrides
  Plan plan;                   // the job's, with the stage's schedule
  std::string best_dir;        // where the weights of its best evaluation go
  bool keeps_best = false;     // the next one starts from them
};

// Of the configuration's task. Throws ConfigError when the stages' steps do not make up those of the plan, or when one
// starts from the best weights of another and checkpoint.keep_best names no metric.
std::vector<StageRun> PlanStages(const Config& config, const Plan& plan);

// Where stages begin and end follows from fields that may be other ones by now; whose weights and moments a checkpoint
// holds does not. After the last one a run may have been cut short. Throws ConfigError when the state's step is none of
// its stage. REQUIRES: there is that stage.
void RequireStage(const TrainState& train, const std::vector<StageRun>& stages);

// The engine of a stage; `from`: what the stage before has left.
std::unique_ptr<Engine> BuildEngine(const StageRun& stage, const Task& task, Device& device, Collectives& collectives,
                                    ModelValues from = {});

}  // namespace trainyard

#endif  // TRAINYARD_TRAINER_TRAIN_STAGES_H_
