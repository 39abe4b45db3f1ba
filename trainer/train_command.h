// `trainyard train`: this process is one rank.
#ifndef TRAINYARD_TRAINER_TRAIN_COMMAND_H_
#define TRAINYARD_TRAINER_TRAIN_COMMAND_H_

#include <functional>
#include <string>
#include <vector>

#include "trainer/config/config.h"

namespace trainyard {

// What launch, train, eval and plan have in common.
struct CommonOptions {
  std::string config;
  std::vector<std::string> sets;
  std::string record;
};

// Throws ConfigError.
Config Load(const CommonOptions& options);

// Runs the command `name`; what it throws is said on standard error, of launch and train in the termination message as
// well, and becomes the exit code.
int Guarded(const std::string& name, const std::function<int()>& run);

// Returns the exit code, when the cause is told: to the launcher, or on standard error and in the termination message.
// Throws what is wrong before the process knows which rank it is.
int TrainCommand(const CommonOptions& options, bool dry_run);

}  // namespace trainyard

#endif  // TRAINYARD_TRAINER_TRAIN_COMMAND_H_
