#include "trainer/launch/child.h"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <exception>
#include <vector>

#include "trainer/base/clock.h"
#include "trainer/base/environment.h"
#include "trainer/base/error.h"
#include "trainer/base/file.h"
#include "trainer/base/fork.h"
#include "trainer/base/message.h"
#include "trainer/base/stop_signal.h"
#include "trainer/base/text.h"
#include "trainer/launch/report_channel.h"

namespace trainyard {
namespace {

constexpr int kReportFd = 3;
constexpr double kLookSeconds = 120;  // a driver that begins with eight GPUs takes tens of seconds

struct Pipe {
  explicit Pipe(const std::string& what) {
    int ends[2];
    if (pipe2(ends, O_CLOEXEC) != 0)
      throw Error(ExitCode::kInternal,
                  "cannot make " + what + ": " + std::strerror(errno) + "; the limit on open files is ulimit -n");
    read = ends[0];
    write = ends[1];
  }
  int read, write;
};

// The launcher's sockets and its ends of other ranks' pipes. A peer's death shows only where nobody else holds them.
void CloseWhatExecWould() {
  std::vector<int> open;
  std::error_code ignored;  // without /proc they stay
  for (const auto& entry : fs::directory_iterator("/proc/self/fd", ignored))
    open.push_back(std::atoi(entry.path().filename().c_str()));
  for (const int fd : open) {
    const int flags = fcntl(fd, F_GETFD);
    if (flags >= 0 && (flags & FD_CLOEXEC) != 0) close(fd);
  }
}

// Nothing may unwind into what the launcher was at.
[[noreturn]] void BeRank(const ChildOptions& options, int output, int report) noexcept {
  setpgid(0, 0);
  const sigset_t blocked = StopSignalSet();
  sigprocmask(SIG_SETMASK, &blocked, nullptr);
  dup2(output, STDOUT_FILENO);
  dup2(output, STDERR_FILENO);
  // The descriptor may already be kReportFd; dup2 would then leave it close-on-exec.
  if (report == kReportFd) {
    fcntl(kReportFd, F_SETFD, 0);
  } else {
    dup2(report, kReportFd);
  }
  CloseWhatExecWould();
  bool set = setenv(kReportFdVariable, std::to_string(kReportFd).c_str(), 1) == 0;
  for (const auto& [name, value] : options.environment) set = setenv(name.c_str(), value.c_str(), 1) == 0 && set;
  if (!set) _exit(static_cast<int>(ExitCode::kOutOfMemory));
  std::exit(options.rank());
}

}  // namespace

bool IsForkable() {
  if (!EnvText("LD_PRELOAD").empty() || !EnvText("CUDA_INJECTION64_PATH").empty()) return false;
  std::error_code unknown;
  const fs::directory_iterator threads("/proc/self/task", unknown);
  return unknown || std::distance(threads, fs::directory_iterator()) == 1;  // without /proc nothing can be executed
}

Child StartChild(const ChildOptions& options) {
  const Pipe output("a rank's pipes"), report("a rank's pipes");
  const pid_t pid = Fork("a rank's process");
  if (pid == 0) BeRank(options, output.write, report.write);
  close(output.write);
  close(report.write);
  fcntl(output.read, F_SETFL, O_NONBLOCK);
  fcntl(report.read, F_SETFL, O_NONBLOCK);
  return {pid, output.read, report.read};
}

int CountApart(const std::string& what, const std::function<int()>& count) {
  const Pipe answer("a pipe to " + what);
  const pid_t pid = Fork("a process that looks at " + what);
  if (pid == 0) {
    std::string text;
    ExitCode code = ExitCode::kDone;
    try {
      text = std::to_string(count());
    } catch (const std::exception& error) {
      text = MessageOf(error);
      code = CodeOf(error);
    }
    _exit(write(answer.write, text.data(), text.size()) < 0 ? 1 : static_cast<int>(code));
  }
  close(answer.write);
  std::string text;
  char buffer[4096];
  const double end = SteadySeconds() + kLookSeconds;
  for (ssize_t n = 1; n != 0;) {
    pollfd ready{answer.read, POLLIN, 0};
    if (poll(&ready, 1, 100) > 0 && (n = read(answer.read, buffer, sizeof buffer)) > 0)
      text.append(buffer, static_cast<size_t>(n));
    // What is stuck in a driver may not even end with SIGKILL: nobody waits for that.
    const bool stop = StopPending();
    if (n != 0 && (stop || SteadySeconds() > end)) {
      kill(pid, SIGKILL);
      if (stop) throw StoppedError("stopped on request while " + what + " were looked at");
      throw Error(ExitCode::kInternal,
                  "cannot look at " + what + ": no answer for " + HumanSeconds(kLookSeconds) + "; is a driver stuck?");
    }
  }
  close(answer.read);
  int status = 0;
  waitpid(pid, &status, 0);
  if (status == 0 && !text.empty()) return std::atoi(text.c_str());
  ExitCode code = ExitCode::kInternal;
  if (WIFSIGNALED(status)) {
    text = Format("killed by signal %d (%s)", WTERMSIG(status), strsignal(WTERMSIG(status)));
  } else if (text.empty()) {
    text = Format("ended with exit code %d", WEXITSTATUS(status));  // which is none of ours
  } else {
    code = static_cast<ExitCode>(WEXITSTATUS(status));
  }
  throw Error(code, "cannot look at " + what + ": " + text);
}

}  // namespace trainyard
