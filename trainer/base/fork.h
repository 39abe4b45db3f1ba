// A process that goes on with what this one has.
#ifndef TRAINYARD_TRAINER_BASE_FORK_H_
#define TRAINYARD_TRAINER_BASE_FORK_H_

#include <sys/types.h>

#include <string>

namespace trainyard {

// fork(2): 0 in the child, which ends with SIGKILL when the thread that called this does, and must neither return into
// what its parent was at nor throw into it. What was buffered for output is written before, by the parent alone.
// `what` names the child in Error(kInternal), which is thrown when the system refuses.
pid_t Fork(const std::string& what);

}  // namespace trainyard

#endif  // TRAINYARD_TRAINER_BASE_FORK_H_
