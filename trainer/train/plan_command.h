// `trainyard plan`: what this machine is, what a run on it decides and why, and what the model takes.
#ifndef TRAINYARD_TRAINER_TRAIN_PLAN_COMMAND_H_
#define TRAINYARD_TRAINER_TRAIN_PLAN_COMMAND_H_

#include <optional>

#include "trainer/config/config.h"

namespace trainyard {

// Prints the hardware, each decision with its reason, the bytes per component of a rank in a world of `ranks` on this
// machine (nothing: one for each GPU, at least one), what is not counted, and whether the machine can hold the rest,
// else what to change; as JSON if asked (docs/plan.md). Returns the exit code: 71 when it cannot. Reads no data and
// makes no tensor: only the run knows whether an auto batch is more than the data set. Throws ConfigError.
int PrintPlan(const Config& config, std::optional<int> ranks, bool json);

}  // namespace trainyard

#endif  // TRAINYARD_TRAINER_TRAIN_PLAN_COMMAND_H_
