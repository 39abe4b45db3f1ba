// Ranks as threads of one process: multi-rank logic in unit tests.
#ifndef TRAINYARD_TRAINER_COMM_IN_PROCESS_H_
#define TRAINYARD_TRAINER_COMM_IN_PROCESS_H_

#include <memory>
#include <vector>

#include "trainer/comm/communicator.h"

namespace trainyard {

// One communicator per rank; each is used by its own thread.
std::vector<std::unique_ptr<Communicator>> MakeInProcessWorld(int size);

}  // namespace trainyard

#endif  // TRAINYARD_TRAINER_COMM_IN_PROCESS_H_
