// `trainyard plan`: what a model would take on a rank, before anything is allocated.
#ifndef TRAINYARD_TRAINER_TRAIN_PLAN_COMMAND_H_
#define TRAINYARD_TRAINER_TRAIN_PLAN_COMMAND_H_

#include "trainer/config/config.h"

namespace trainyard {

// Prints the parameters, the bytes per component of a rank in a world of `ranks` on this machine, and whether they fit
// it; as JSON if asked. Reads no data and makes no tensor. Throws ConfigError.
void PrintPlan(const Config& config, int ranks, bool json);

}  // namespace trainyard

#endif  // TRAINYARD_TRAINER_TRAIN_PLAN_COMMAND_H_
