#include "trainer/base/fork.h"

#include <signal.h>
#include <sys/prctl.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstring>

#include "trainer/base/error.h"
#include "trainer/base/message.h"

namespace trainyard {

pid_t Fork(const std::string& what) {
  std::fflush(nullptr);
  const pid_t parent = getpid(), pid = fork();
  if (pid < 0)
    throw Error(ExitCode::kInternal,
                "cannot start " + what + ": " + std::strerror(errno) + "; the limits are " + kThreadLimits);
  if (pid == 0) {
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (getppid() != parent) _exit(128 + SIGKILL);
  }
  return pid;
}

}  // namespace trainyard
