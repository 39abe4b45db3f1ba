// A job may train in stages, one after the other: pre-training and fine-tuning, the parts of a cascade, frozen and then
// unfrozen. One stage is the normal case.
#ifndef TRAINYARD_TRAINER_TASK_STAGE_H_
#define TRAINYARD_TRAINER_TASK_STAGE_H_

#include <algorithm>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "trainer/config/config.h"

namespace trainyard {

struct Stage {
  std::string name;
  // Steps, or epochs; of the last stage neither has to be said: it has what is left of the run, and a single one all.
  int64_t steps = 0;
  int64_t epochs = 0;
  // Patterns (* and ?) of the parameters that it trains, of those that the model declares as trained; empty: all. What
  // a stage does not train keeps its value to the bit, and its moments start at zero in the next that does.
  std::vector<std::string> trainable;
  // Instead of the job's. A schedule counts the steps of its stage.
  std::optional<OptimConfig> optim;
  std::optional<ScheduleConfig> schedule;
  // Those of the task's metrics that say something about what it trains; empty: all. A plateau, an early stop and the
  // best weights look at no other.
  std::vector<std::string> metrics;
  // Starts from the weights that the stage before had at its best value of checkpoint.keep_best, not its last ones.
  bool from_best = false;

  bool Counts(const std::string& metric) const {
    return metrics.empty() || std::ranges::find(metrics, metric) != metrics.end();
  }
};

}  // namespace trainyard

#endif  // TRAINYARD_TRAINER_TASK_STAGE_H_
