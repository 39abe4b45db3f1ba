#include "operator/local/process.h"

#include <fcntl.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>
#include <cstring>
#include <fstream>
#include <iterator>

namespace trainyard::local {
namespace {

// The file that execvp would find with the child's PATH; empty when there is none.
std::string FindCommand(const std::string& name, const std::vector<std::string>& environment) {
  if (name.find('/') != std::string::npos) return access(name.c_str(), X_OK) == 0 ? name : "";
  std::string path = "/usr/local/bin:/usr/bin:/bin";
  for (const std::string& variable : environment) {
    if (variable.starts_with("PATH=")) path = variable.substr(5);
  }
  for (size_t begin = 0; begin <= path.size();) {
    const size_t end = std::min(path.find(':', begin), path.size());
    std::string candidate = path.substr(begin, end - begin) + "/" + name;
    if (access(candidate.c_str(), X_OK) == 0) return candidate;
    begin = end + 1;
  }
  return "";
}

std::vector<char*> Pointers(const std::vector<std::string>& texts) {
  std::vector<char*> out;
  for (const std::string& text : texts) out.push_back(const_cast<char*>(text.c_str()));
  out.push_back(nullptr);
  return out;
}

// Between fork and exec: only calls that are safe there. Returns what failed through `report`.
[[noreturn]] void RunChild(const char* file, char* const* arguments, char* const* environment, const char* directory,
                           int output, pid_t parent, int report) {
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  if (getppid() != parent) _exit(137);  // it died before the line above
  setsid();
  sigset_t none;
  sigemptyset(&none);
  sigprocmask(SIG_SETMASK, &none, nullptr);
  signal(SIGPIPE, SIG_DFL);
  const int input = open("/dev/null", O_RDONLY | O_CLOEXEC);
  int error = 0;
  if (dup2(input, 0) < 0 || dup2(output, 1) < 0 || dup2(output, 2) < 0 || (*directory && chdir(directory) != 0))
    error = errno;
  if (error == 0) {
    execve(file, arguments, environment);
    error = errno;
  }
  [[maybe_unused]] const ssize_t written = write(report, &error, sizeof error);
  _exit(127);
}

}  // namespace

Result<Process> Process::Start(const ProcessSpec& spec) {
  const std::string file = FindCommand(spec.command.at(0), spec.environment);
  if (file.empty())
    return Status(Code::kNotFound, "exec: \"" + spec.command[0] + "\": executable file not found in $PATH");
  const int output = open(spec.output.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0644);
  if (output < 0) return Status(Code::kInternal, spec.output + ": " + std::strerror(errno));
  int report[2];
  if (pipe2(report, O_CLOEXEC) != 0) {
    close(output);
    return Status(Code::kInternal, std::string("pipe: ") + std::strerror(errno));
  }
  const std::vector<char*> arguments = Pointers(spec.command), environment = Pointers(spec.environment);
  const pid_t parent = getpid(), pid = fork();
  if (pid == 0)
    RunChild(file.c_str(), arguments.data(), environment.data(), spec.directory.c_str(), output, parent, report[1]);
  const int fork_error = errno;
  close(output);
  close(report[1]);
  int error = 0;
  const bool failed = pid > 0 && read(report[0], &error, sizeof error) == static_cast<ssize_t>(sizeof error);
  close(report[0]);
  if (pid < 0) return Status(Code::kInternal, std::string("fork: ") + std::strerror(fork_error));
  if (failed) {
    waitpid(pid, nullptr, 0);
    return Status(Code::kInternal, file + ": " + std::strerror(error));
  }
  return Process(pid);
}

std::optional<ProcessEnd> Process::Poll() {
  if (end_) return end_;
  int state = 0;
  const pid_t got = waitpid(pid_, &state, WNOHANG);
  if (got == 0 || (got < 0 && errno == EINTR)) return std::nullopt;
  if (got < 0) {
    end_ = ProcessEnd{.exit_code = 255, .signal = 0};  // someone else took its end
  } else if (WIFSIGNALED(state)) {
    end_ = ProcessEnd{.exit_code = 128 + WTERMSIG(state), .signal = WTERMSIG(state)};
  } else {
    end_ = ProcessEnd{.exit_code = WEXITSTATUS(state), .signal = 0};
  }
  return end_;
}

void Process::Signal(int number) const {
  if (end_) return;
  if (kill(-pid_, number) != 0) kill(pid_, number);
}

std::optional<std::string> StartTime(pid_t pid) {
  std::ifstream file("/proc/" + std::to_string(pid) + "/stat");
  const std::string text((std::istreambuf_iterator<char>(file)), {});
  // Field 22; the second, the name, may hold anything up to the last parenthesis.
  size_t at = text.rfind(')');
  if (at == std::string::npos) return std::nullopt;
  for (int field = 2; field < 22; ++field) {
    at = text.find(' ', at + 1);
    if (at == std::string::npos) return std::nullopt;
  }
  return text.substr(at + 1, text.find(' ', at + 1) - at - 1);
}

}  // namespace trainyard::local
