// What the manual pages of `trainyard` say beside the options.
#ifndef TRAINYARD_TRAINER_MANUAL_H_
#define TRAINYARD_TRAINER_MANUAL_H_

#include <string>
#include <vector>

#include "common/command_line/manual.h"

namespace trainyard {

// `synthetic`: the tasks that have synthetic data.
cli::Manuals TrainerManuals(const std::vector<std::string>& synthetic);

}  // namespace trainyard

#endif  // TRAINYARD_TRAINER_MANUAL_H_
