#include "trainer/launch/child.h"

#include <fcntl.h>
#include <signal.h>
#include <sys/prctl.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

#include "trainer/base/error.h"
#include "trainer/base/message.h"
#include "trainer/base/stop_signal.h"
#include "trainer/launch/report_channel.h"

extern char** environ;

namespace trainyard {
namespace {

constexpr int kReportFd = 3;

// The launcher's environment with the options' on top, as "NAME=value".
std::vector<std::string> MergedEnvironment(const std::map<std::string, std::string>& extra) {
  std::vector<std::string> merged;
  for (char** entry = environ; *entry; ++entry) {
    const std::string text = *entry;
    if (!extra.contains(text.substr(0, text.find('=')))) merged.push_back(text);
  }
  for (const auto& [name, value] : extra) merged.push_back(name + "=" + value);
  return merged;
}

std::vector<char*> Pointers(std::vector<std::string>& texts) {
  std::vector<char*> pointers;
  for (std::string& text : texts) pointers.push_back(text.data());
  pointers.push_back(nullptr);
  return pointers;
}

}  // namespace

Child StartChild(const ChildOptions& options) {
  int output[2], report[2];
  if (pipe2(output, O_CLOEXEC) != 0 || pipe2(report, O_CLOEXEC) != 0)
    throw Error(ExitCode::kInternal, std::string("cannot make a rank's pipes: ") + std::strerror(errno) +
                                         "; the limit on open files is ulimit -n");
  // Everything that allocates happens before the fork: the launcher may have threads.
  std::map<std::string, std::string> extra = options.environment;
  extra[kReportFdVariable] = std::to_string(kReportFd);
  std::vector<std::string> command = options.command, environment = MergedEnvironment(extra);
  const std::vector<char*> argv = Pointers(command), envp = Pointers(environment);
  const pid_t parent = getpid();
  const pid_t pid = fork();
  if (pid < 0)
    throw Error(ExitCode::kInternal, std::string("cannot start a rank's process: ") + std::strerror(errno) +
                                         "; the limits are " + kThreadLimits);
  if (pid == 0) {
    setpgid(0, 0);
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (getppid() != parent) _exit(128 + SIGKILL);
    const sigset_t blocked = StopSignalSet();
    sigprocmask(SIG_SETMASK, &blocked, nullptr);
    dup2(output[1], STDOUT_FILENO);
    dup2(output[1], STDERR_FILENO);
    // The descriptor may already be kReportFd; dup2 would then leave it close-on-exec.
    if (report[1] == kReportFd) {
      fcntl(kReportFd, F_SETFD, 0);
    } else {
      dup2(report[1], kReportFd);
    }
    execve(argv[0], argv.data(), envp.data());
    _exit(errno == ENOENT ? 127 : 126);
  }
  close(output[1]);
  close(report[1]);
  fcntl(output[0], F_SETFL, O_NONBLOCK);
  fcntl(report[0], F_SETFL, O_NONBLOCK);
  return {pid, output[0], report[0]};
}

}  // namespace trainyard
