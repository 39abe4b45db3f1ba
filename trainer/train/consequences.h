// What follows from an evaluation, and from a change of what decides that.
#ifndef TRAINYARD_TRAINER_TRAIN_CONSEQUENCES_H_
#define TRAINYARD_TRAINER_TRAIN_CONSEQUENCES_H_

#include <map>
#include <nlohmann/json_fwd.hpp>
#include <string>

#include "trainer/config/config.h"
#include "trainer/task/stage.h"
#include "trainer/train/train_state.h"

namespace trainyard {

struct Consequences {
  bool new_best = false;    // of checkpoint.keep_best: these weights are to be kept
  bool stop_early = false;  // train.early_stop has seen enough
};

// Moves plateau, best and early stop in `train`, by the metrics that count in `stage`; the same on every rank. `last`:
// training has ended anyway. REQUIRES: `metrics` holds what the configuration watches.
Consequences ActOn(const std::map<std::string, double>& metrics, const Config& config, const Stage& stage, bool last,
                   TrainState& train);

// `train` was saved under the configuration `saved` and goes on under `now`: what was best by another metric, or as
// measured otherwise (TaskOptions::MeasuredWith), is forgotten, and an early stop that `now` would not have made has
// not been. REQUIRES: `now` has a task.
void ForgetOtherRules(const nlohmann::json& saved, const Config& now, TrainState& train);

}  // namespace trainyard

#endif  // TRAINYARD_TRAINER_TRAIN_CONSEQUENCES_H_
