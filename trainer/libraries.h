// The libraries of the trainer, for --version.
#ifndef TRAINYARD_TRAINER_LIBRARIES_H_
#define TRAINYARD_TRAINER_LIBRARIES_H_

#include <vector>

#include "common/build_info.h"

namespace trainyard {

std::vector<LibraryVersion> TrainerLibraries();

}  // namespace trainyard

#endif  // TRAINYARD_TRAINER_LIBRARIES_H_
