#include "operator/local/node/process.h"

#include <fcntl.h>
#include <poll.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <csignal>
#include <cstring>
#include <filesystem>

#include "operator/base/descriptor.h"
#include "operator/base/file.h"
#include "operator/local/node/session.h"

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

constexpr double kStartSeconds = 30;

// Everything that the child needs, made before the fork: afterwards only system calls are safe.
struct Child {
  const ProcessSpec& spec;
  const std::vector<std::string> files;
  const std::vector<char*> arguments, environment;
  const std::string directory;
  const int input, output, report;
  const pid_t parent;
};

// What the child says when it could not become the command.
struct Failure {
  enum Stage { kNamespace, kMounts, kDirectory, kCommand } stage;
  int error, step;
};

// Where the child's end of the pipe is, once everything else is closed.
constexpr int kReport = 3;

[[noreturn]] void Fail(Failure failure) {
  [[maybe_unused]] const ssize_t written = write(kReport, &failure, sizeof failure);
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

void DieWithParent(pid_t parent) {
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  if (getppid() != parent) _exit(137);  // it died before the line above
}

// Without close_range (a kernel before 5.9, a seccomp profile that does not know it) one after the other.
bool CloseFrom(unsigned first) {
  if (syscall(SYS_close_range, first, ~0U, 0) == 0) return true;
  rlimit most{};
  if (getrlimit(RLIMIT_NOFILE, &most) != 0) return false;
  for (rlim_t fd = first; fd < std::min<rlim_t>(most.rlim_cur, 1 << 20); ++fd) close(static_cast<int>(fd));
  return true;
}

// Keeps nothing of the parent's: not its lock on the state directory, not its connections.
bool TakeFiles(const Child& child) {
  return dup2(child.input, 0) >= 0 && dup2(child.output, 1) >= 0 && dup2(child.output, 2) >= 0 &&
         (child.report == kReport || dup2(child.report, kReport) >= 0) && fcntl(kReport, F_SETFD, FD_CLOEXEC) == 0 &&
         CloseFrom(kReport + 1);
}

[[noreturn]] void RunChild(const Child& child) {
  DieWithParent(child.parent);
  if (!TakeFiles(child)) _exit(126);
  if (child.spec.mounts) {
    if (const int error = child.spec.mounts->Unshare(); error != 0) Fail({Failure::kNamespace, error, 0});
    DieWithParent(child.parent);
    int step = 0;
    if (const int error = child.spec.mounts->Make(step); error != 0) Fail({Failure::kMounts, error, step});
  }
  setsid();
  sigset_t none;
  sigemptyset(&none);
  sigprocmask(SIG_SETMASK, &none, nullptr);
  signal(SIGPIPE, SIG_DFL);
  // A folder that nobody asked for may be hidden by a volume.
  if (chdir(child.directory.c_str()) != 0 && (!child.spec.directory.empty() || chdir("/") != 0))
    Fail({Failure::kDirectory, errno, 0});
  Fail({Failure::kCommand, Execute(child), 0});
}

Status StatusOf(const Failure& failure, const ProcessSpec& spec) {
  const std::string error = std::strerror(failure.error), &command = spec.command[0];
  switch (failure.stage) {
    case Failure::kNamespace:
      return Status(Code::kInternal, "a mount namespace: " + error);
    case Failure::kMounts:
      return Status(Code::kInternal, spec.mounts->Describe(failure.step) + ": " + error);
    case Failure::kDirectory:
      return Status(Code::kInternal, "working directory " + spec.directory + ": " + error);
    case Failure::kCommand:
      break;
  }
  const std::string exec = "exec: \"" + command + "\": ";
  if (failure.error != ENOENT) return Status(Code::kInternal, exec + error);
  return Status(Code::kNotFound, exec + (command.find('/') == std::string::npos ? "executable file not found in $PATH"
                                                                                : "no such file or directory"));
}

// What comes through `report` before it closes: ok when nothing does, which is what exec leaves.
Status AwaitExec(int report, const ProcessSpec& spec) {
  pollfd ready{.fd = report, .events = POLLIN, .revents = 0};
  const auto deadline = std::chrono::steady_clock::now() + std::chrono::duration<double>(kStartSeconds);
  for (;;) {
    const auto left =
        std::chrono::duration_cast<std::chrono::milliseconds>(deadline - std::chrono::steady_clock::now()).count();
    const int got = left > 0 ? poll(&ready, 1, static_cast<int>(left)) : 0;
    if (got < 0 && errno == EINTR) continue;
    if (got <= 0) return Status(Code::kDeadline, "the process did not start within half a minute: a mount hangs");
    Failure failure{};
    const ssize_t size = read(report, &failure, sizeof failure);
    if (size < 0 && errno == EINTR) continue;
    return size == static_cast<ssize_t>(sizeof failure) ? StatusOf(failure, spec) : Status::Ok();
  }
}

// A process that never became the command. One that the kernel does not let go is left to it.
void Discard(pid_t pid) {
  kill(pid, SIGKILL);
  for (int i = 0; i < 100 && waitpid(pid, nullptr, WNOHANG) == 0; ++i) usleep(10000);
}

}  // namespace

Result<Process> Process::Start(const ProcessSpec& spec) {
  // Another container may have put something else there before this one began.
  const Descriptor output(spec.output.empty() ? open("/dev/null", O_WRONLY | O_CLOEXEC)
                                              : OpenRegular(spec.output, O_WRONLY | O_CREAT | O_APPEND, 0644));
  if (output.get() < 0) return Status(Code::kInternal, spec.output + ": " + std::strerror(errno));
  const Descriptor input(open("/dev/null", O_RDONLY | O_CLOEXEC));
  if (input.get() < 0) return Status(Code::kInternal, std::string("/dev/null: ") + std::strerror(errno));
  int ends[2];
  if (pipe2(ends, O_CLOEXEC) != 0) return Status(Code::kInternal, std::string("pipe: ") + std::strerror(errno));
  const Descriptor ours(ends[0]);
  Descriptor childs(ends[1]);
  std::error_code ignored;
  const std::string own = std::filesystem::current_path(ignored).string();
  const Child child{.spec = spec,
                    .files = Candidates(spec.command.at(0), spec.environment),
                    .arguments = Pointers(spec.command),
                    .environment = Pointers(spec.environment),
                    .directory = spec.directory.empty() ? own : spec.directory,
                    .input = input.get(),
                    .output = output.get(),
                    .report = childs.get(),
                    .parent = getpid()};
  const pid_t pid = fork();
  if (pid == 0) RunChild(child);
  if (pid < 0) return Status(Code::kInternal, std::string("fork: ") + std::strerror(errno));
  childs.Close();
  if (Status status = AwaitExec(ours.get(), spec); !status.ok()) {
    Discard(pid);
    return status;
  }
  return Process(pid);
}

Status TryMounts(const std::filesystem::path& folder) {
  const std::string path = std::filesystem::absolute(folder).string();
  const Result<std::vector<MountStep>> steps =
      PlanMounts({{.at = "/trainyard-probe/volume", .source = "/usr", .read_only = true}}, path);
  if (!steps.ok()) return steps.status();
  const ProcessSpec spec{.command = {"true"},
                         .environment = {},
                         .directory = "/trainyard-probe/volume",
                         .output = {},
                         .mounts = MountNamespace(*steps)};
  Result<Process> process = Process::Start(spec);
  if (!process.ok()) return process.status();
  while (!process->Poll()) usleep(1000);
  const ProcessEnd end = *process->Poll();
  if (end.exit_code == 0 && end.signal == 0) return Status::Ok();
  return Status(Code::kUnavailable,
                "a process that was to see such a volume ended with " + std::to_string(end.exit_code));
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
  if (number == SIGKILL) return KillSession(pid_);
  if (kill(-pid_, number) != 0) kill(pid_, number);
}

}  // namespace trainyard::local
