// `trainyard plan`: what a model would take on a rank, before anything is allocated.
#ifndef TRAINYARD_TRAINER_TRAIN_PLAN_COMMAND_H_
#define TRAINYARD_TRAINER_TRAIN_PLAN_COMMAND_H_

#include "trainer/config/config.h"

namespace trainyard {

// Prints the parameters, the bytes per component of a rank in a world of `ranks` on this machine, what is not counted,
// and whether the machine can hold the rest; as JSON if asked. Returns the exit code: 71 when it cannot. Reads no data
// and makes no tensor. Throws ConfigError.
int PrintPlan(const Config& config, int ranks, bool json);

}  // namespace trainyard

#endif  // TRAINYARD_TRAINER_TRAIN_PLAN_COMMAND_H_
