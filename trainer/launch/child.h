// One rank as a child process of the launcher.
#ifndef TRAINYARD_TRAINER_LAUNCH_CHILD_H_
#define TRAINYARD_TRAINER_LAUNCH_CHILD_H_

#include <sys/types.h>

#include <map>
#include <string>
#include <vector>

namespace trainyard {

struct ChildOptions {
  std::vector<std::string> command;                // command[0] is a path
  std::map<std::string, std::string> environment;  // set on top of the launcher's
};

// The launcher's ends of a child's pipes; -1 when closed.
struct Child {
  pid_t pid = -1;
  int output = -1;  // its standard output and error
  int report = -1;  // its report channel
};

// Starts the process in a process group of its own (a terminal's Ctrl-C reaches the launcher only),
// with SIGKILL at the launcher's death, StopSignalSet blocked until it has installed its
// handlers (base/stop_signal.h), and the report channel's descriptor in its environment. Throws Error(kInternal) when
// the system refuses.
Child StartChild(const ChildOptions& options);

}  // namespace trainyard

#endif  // TRAINYARD_TRAINER_LAUNCH_CHILD_H_
