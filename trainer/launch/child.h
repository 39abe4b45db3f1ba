// One rank as a child process of the launcher.
#ifndef TRAINYARD_TRAINER_LAUNCH_CHILD_H_
#define TRAINYARD_TRAINER_LAUNCH_CHILD_H_

#include <sys/types.h>

#include <functional>
#include <map>
#include <string>

namespace trainyard {

struct ChildOptions {
  std::function<int()> rank;                       // runs in the process, which ends with what it returns
  std::map<std::string, std::string> environment;  // set on top of the launcher's
};

// The launcher's ends of a child's pipes; -1 when closed.
struct Child {
  pid_t pid = -1;
  int output = -1;  // its standard output and error
  int report = -1;  // its report channel
};

// Whether this process is what it was linked as, so that a fork of it is a whole one. What else may be here are
// threads, which a fork lacks, and libraries that someone had loaded into every program that is executed (LD_PRELOAD, a
// profiler's CUDA_INJECTION64_PATH).
bool IsForkable();

// Forks the process, in a process group of its own (a terminal's Ctrl-C reaches the launcher only), with SIGKILL at the
// launcher's death, StopSignalSet blocked until it has installed its handlers (base/stop_signal.h), the report
// channel's descriptor in its environment, and without the launcher's descriptors that an exec would close. There is no
// exec: what the launcher has loaded and initialised, the rank has too (of LibTorch a third of a second), in the same
// pages of memory.
// REQUIRES: IsForkable, unless `rank` executes a program; no driver of a device was opened, which no fork can use.
// `rank` throws nothing. Throws Error(kInternal) when the system refuses.
Child StartChild(const ChildOptions& options);

// What `count` returns in a process of its own, which then ends: for what must not be opened here before a fork.
// `what` names it in errors. Throws Error, with the code and message of what `count` has thrown, or when it has not
// returned in two minutes; StoppedError as soon as a blocked stop waits.
int CountApart(const std::string& what, const std::function<int()>& count);

}  // namespace trainyard

#endif  // TRAINYARD_TRAINER_LAUNCH_CHILD_H_
