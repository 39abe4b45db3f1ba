#include "trainer/selftest/processes.h"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <exception>
#include <vector>

#include "trainer/base/clock.h"
#include "trainer/base/error.h"
#include "trainer/base/fork.h"
#include "trainer/base/text.h"

namespace trainyard::selftest {
namespace {

constexpr double kAfterFailure = 2;         // seconds
constexpr char kSays = '+', kFailed = '!';  // before a line

void Send(int pipe, char kind, std::string line) {
  std::replace(line.begin(), line.end(), '\n', ' ');
  line = kind + line + "\n";
  // Less than PIPE_BUF comes whole, between the lines of others.
  if (line.size() > 4000) line = line.substr(0, 4000) + "\n";
  [[maybe_unused]] const ssize_t written = write(pipe, line.data(), line.size());
}

}  // namespace

pid_t Fork(const std::function<bool()>& check) {
  const pid_t child = trainyard::Fork("a process of the selftest");
  if (child == 0) {
    bool good = false;
    try {
      good = check();
    } catch (const std::exception& error) {
      std::fprintf(stderr, "trainyard: selftest: %s\n", error.what());
    }
    _exit(good ? 0 : 1);
  }
  return child;
}

bool Succeeded(pid_t child) {
  int status = 0;
  return waitpid(child, &status, 0) == child && WIFEXITED(status) && WEXITSTATUS(status) == 0;
}

std::string RunGroup(int size, std::chrono::seconds deadline, const std::function<void(int, const Tell&)>& body,
                     const Tell& hear) {
  int pipes[2];
  if (pipe2(pipes, O_CLOEXEC) != 0) throw Error(ExitCode::kInternal, "cannot make a pipe");
  std::vector<pid_t> children;
  for (int rank = 0; rank < size; ++rank) {
    children.push_back(Fork([&, rank] {
      try {
        body(rank, [&](const std::string& line) { Send(pipes[1], kSays, line); });
        return true;
      } catch (const std::exception& error) {
        Send(pipes[1], kFailed, error.what());
        return false;
      }
    }));
  }
  close(pipes[1]);
  std::string text, problem;
  double end = SteadySeconds() + static_cast<double>(deadline.count());
  // The pipe ends when the last process has.
  for (bool open = true; open;) {
    pollfd ready{pipes[0], POLLIN, 0};
    if (poll(&ready, 1, 100) > 0) {
      char buffer[4096];
      const ssize_t got = read(pipes[0], buffer, sizeof buffer);
      open = got > 0;
      if (got > 0) text.append(buffer, static_cast<size_t>(got));
    }
    if (SteadySeconds() > end) {
      if (problem.empty()) problem = Format("not over after %lld s", static_cast<long long>(deadline.count()));
      for (const pid_t child : children) kill(child, SIGKILL);
    }
    for (size_t at; (at = text.find('\n')) != std::string::npos; text.erase(0, at + 1)) {
      if (text[0] == kSays) hear(text.substr(1, at - 1));
      if (text[0] != kFailed || !problem.empty()) continue;
      problem = text.substr(1, at - 1);
      end = std::min(end, SteadySeconds() + kAfterFailure);  // the others wait for it
    }
  }
  close(pipes[0]);
  for (size_t rank = 0; rank < children.size(); ++rank) {
    int status = 0;
    const bool known = waitpid(children[rank], &status, 0) == children[rank];
    if (!problem.empty() || (known && WIFEXITED(status) && WEXITSTATUS(status) == 0)) continue;
    problem = known && WIFSIGNALED(status) ? Format("process %zu was killed by signal %d", rank, WTERMSIG(status))
                                           : Format("process %zu ended without a word", rank);
  }
  return problem;
}

}  // namespace trainyard::selftest
