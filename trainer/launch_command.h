// `trainyard launch`: what becomes of its options.
#ifndef TRAINYARD_TRAINER_LAUNCH_COMMAND_H_
#define TRAINYARD_TRAINER_LAUNCH_COMMAND_H_

#include <string>

#include "trainer/base/process_title.h"
#include "trainer/launch/world.h"
#include "trainer/train_command.h"

namespace trainyard {

// Looks at the configuration, starts the ranks of this node (launch/launcher.h), and returns the exit code. `nproc`: a
// number, `auto`, or empty. `title` is that of the ranks, which are forks. Throws UsageError, ConfigError and what
// Launch does.
int LaunchCommand(const CommonOptions& options, const std::string& nproc, NodeFlags nodes, bool quiet,
                  const ProcessTitle& title);

}  // namespace trainyard

#endif  // TRAINYARD_TRAINER_LAUNCH_COMMAND_H_
