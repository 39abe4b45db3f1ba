#include "operator/local/process.h"

#include <fcntl.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iterator>

namespace trainyard::local {
namespace {

// Where execvp would look for `name` with the child's PATH, in its order.
std::vector<std::string> Candidates(const std::string& name, const std::vector<std::string>& environment) {
  if (name.find('/') != std::string::npos) return {name};
  std::string path = "/usr/local/bin:/usr/bin:/bin";
  for (const std::string& variable : environment) {
    if (variable.starts_with("PATH=")) path = variable.substr(5);
  }
  std::vector<std::string> files;
  for (size_t begin = 0; begin <= path.size();) {
    const size_t end = std::min(path.find(':', begin), path.size());
    files.push_back(path.substr(begin, end - begin) + "/" + name);
    begin = end + 1;
  }
  return files;
}

std::vector<char*> Pointers(const std::vector<std::string>& texts) {
  std::vector<char*> out;
  for (const std::string& text : texts) out.push_back(const_cast<char*>(text.c_str()));
  out.push_back(nullptr);
  return out;
}

// Everything that the child needs, made before the fork: afterwards only system calls are safe.
struct Child {
  const ProcessSpec& spec;
  const std::vector<std::string> files;
  const std::vector<char*> arguments, environment;
  const std::string directory;
  const int output, report;
  const pid_t parent;
};

// What the child says when it could not become the command.
struct Failure {
  enum Stage { kMounts, kDirectory, kCommand } stage;
  int error, step;
};

[[noreturn]] void Fail(const Child& child, Failure failure) {
  [[maybe_unused]] const ssize_t written = write(child.report, &failure, sizeof failure);
  _exit(127);
}

// As execvp: a file that is missing is no failure while another may be there.
int Execute(const Child& child) {
  int error = ENOENT;
  for (const std::string& file : child.files) {
    execve(file.c_str(), child.arguments.data(), child.environment.data());
    if (errno == ENOENT || errno == ENOTDIR) continue;
    error = errno;
    if (error != EACCES) break;
  }
  return error;
}

[[noreturn]] void RunChild(const Child& child) {
  int step = 0;
  if (child.spec.mounts) {
    if (const int error = child.spec.mounts->Enter(step); error != 0) Fail(child, {Failure::kMounts, error, step});
  }
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  if (getppid() != child.parent) _exit(137);  // it died before the line above
  setsid();
  sigset_t none;
  sigemptyset(&none);
  sigprocmask(SIG_SETMASK, &none, nullptr);
  signal(SIGPIPE, SIG_DFL);
  const int input = open("/dev/null", O_RDONLY | O_CLOEXEC);
  if (dup2(input, 0) < 0 || dup2(child.output, 1) < 0 || dup2(child.output, 2) < 0 ||
      chdir(child.directory.c_str()) != 0)
    Fail(child, {Failure::kDirectory, errno, 0});
  Fail(child, {Failure::kCommand, Execute(child), 0});
}

Status StatusOf(const Failure& failure, const ProcessSpec& spec, const std::string& directory) {
  const std::string error = std::strerror(failure.error), &command = spec.command[0];
  switch (failure.stage) {
    case Failure::kMounts:
      return Status(Code::kInternal, spec.mounts->Describe(failure.step) + ": " + error);
    case Failure::kDirectory:
      return Status(Code::kInternal, "working directory " + directory + ": " + error);
    case Failure::kCommand:
      break;
  }
  const std::string exec = "exec: \"" + command + "\": ";
  if (failure.error != ENOENT) return Status(Code::kInternal, exec + error);
  return Status(Code::kNotFound, exec + (command.find('/') == std::string::npos ? "executable file not found in $PATH"
                                                                                : "no such file or directory"));
}

}  // namespace

Result<Process> Process::Start(const ProcessSpec& spec) {
  const int output = open(spec.output.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0644);
  if (output < 0) return Status(Code::kInternal, spec.output + ": " + std::strerror(errno));
  int report[2];
  if (pipe2(report, O_CLOEXEC) != 0) {
    close(output);
    return Status(Code::kInternal, std::string("pipe: ") + std::strerror(errno));
  }
  std::error_code ignored;
  const std::string own = std::filesystem::current_path(ignored).string();
  const Child child{.spec = spec,
                    .files = Candidates(spec.command.at(0), spec.environment),
                    .arguments = Pointers(spec.command),
                    .environment = Pointers(spec.environment),
                    .directory = !spec.directory.empty() ? spec.directory
                                 : ignored               ? "/"
                                                         : own,
                    .output = output,
                    .report = report[1],
                    .parent = getpid()};
  const pid_t pid = fork();
  if (pid == 0) RunChild(child);
  const int fork_error = errno;
  close(output);
  close(report[1]);
  Failure failure{};
  const bool failed = pid > 0 && read(report[0], &failure, sizeof failure) == static_cast<ssize_t>(sizeof failure);
  close(report[0]);
  if (pid < 0) return Status(Code::kInternal, std::string("fork: ") + std::strerror(fork_error));
  if (failed) {
    waitpid(pid, nullptr, 0);
    return StatusOf(failure, spec, child.directory);
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
