#include "operator/local/node/session.h"

#include <unistd.h>

#include <charconv>
#include <csignal>
#include <cstdlib>
#include <filesystem>
#include <functional>
#include <iterator>
#include <sstream>
#include <vector>

#include "operator/base/clock.h"
#include "operator/base/file.h"

namespace trainyard::local {
namespace {

constexpr double kKillSeconds = 1;
constexpr int kPauseMicroseconds = 10000;

std::filesystem::path ProcOf(pid_t pid) { return "/proc/" + std::to_string(pid); }

// Empty as well where the process ends meanwhile: then reading is an error (ESRCH).
std::string ReadProc(const std::filesystem::path& path) {
  Result<std::string> text = ReadWhole(path);
  return text.ok() ? *std::move(text) : "";
}

// The fields of /proc/PID/stat from the third, the state, on (proc(5)); empty when there is no such process.
std::vector<std::string> StatFields(pid_t pid) {
  const std::string text = ReadProc(ProcOf(pid) / "stat");
  // The second, the name, may hold anything up to the last parenthesis.
  const size_t name = text.rfind(')');
  if (name == std::string::npos) return {};
  std::istringstream rest(text.substr(name + 1));
  return {std::istream_iterator<std::string>(rest), {}};
}

// All but this one, which would end nothing more if it ended itself.
std::vector<pid_t> Processes() {
  std::vector<pid_t> found;
  std::error_code error;
  std::filesystem::directory_iterator entry("/proc", error);
  for (; !error && entry != std::filesystem::directory_iterator(); entry.increment(error)) {
    const std::string name = entry->path().filename().string();
    pid_t pid = 0;
    if (std::from_chars(name.data(), name.data() + name.size(), pid).ptr != name.data() + name.size()) continue;
    if (pid != getpid()) found.push_back(pid);
  }
  return found;
}

// Of a process whose first thread has ended all say that it has, while others of it run on.
bool RunsWithoutItsFirst(const std::vector<std::string>& fields) {
  constexpr size_t kState = 0, kThreads = 17;
  return fields.size() > kThreads && fields[kState] == "Z" && fields[kThreads] != "1";
}

enum class Belongs { kNo, kYes, kUnclear };

// What has ended belongs to nothing.
Belongs MemberOf(pid_t pid, pid_t id) {
  constexpr size_t kState = 0, kSession = 3;
  const std::vector<std::string> fields = StatFields(pid);
  const bool member = fields.size() > kSession && fields[kSession] == std::to_string(id) &&
                      (fields[kState] != "Z" || RunsWithoutItsFirst(fields));
  return member ? Belongs::kYes : Belongs::kNo;
}

std::string EnvironmentOf(pid_t pid) {
  if (std::string own = ReadProc(ProcOf(pid) / "environ"); !own.empty()) return own;
  if (!RunsWithoutItsFirst(StatFields(pid))) return "";
  std::error_code error;
  std::filesystem::directory_iterator thread(ProcOf(pid) / "task", error);
  for (; !error && thread != std::filesystem::directory_iterator(); thread.increment(error)) {
    if (std::string text = ReadProc(thread->path() / "environ"); !text.empty()) return text;
  }
  return "";
}

// Of a process that has just shown `seen` bytes of environment: whether what they do not hold says nothing, because it
// was becoming another program (execve(2)), where reading ends anywhere, or is about to have ended. Where its code lies
// the kernel says as 0 then, and as 1 of a process that we may not look into. The environment's range is empty of one
// that has none, and of one whose variables it is counting; it notes the code's after that (load_elf_binary in
// fs/binfmt_elf.c).
bool WasInTransition(pid_t pid, size_t seen) {
  constexpr size_t kState = 0, kFlags = 6, kCodeStart = 23, kEnvironmentStart = 47, kEnvironmentEnd = 48;
  constexpr unsigned long kKernelThread = 0x00200000;  // PF_KTHREAD, which never has either
  const std::vector<std::string> fields = StatFields(pid);
  const auto number = [&](size_t field) { return std::strtoul(fields[field].c_str(), nullptr, 10); };
  if (fields.size() <= kEnvironmentEnd || fields[kState] == "Z" || fields[kCodeStart] == "1" ||
      (number(kFlags) & kKernelThread) != 0)
    return false;
  return fields[kCodeStart] == "0" || number(kEnvironmentEnd) - number(kEnvironmentStart) != seen;
}

// What has ended carries nothing.
Belongs CarrierOf(pid_t pid, const std::string& variable) {
  const std::string text = EnvironmentOf(pid);
  if (('\0' + text + '\0').find('\0' + variable + '\0') != std::string::npos) return Belongs::kYes;
  return WasInTransition(pid, text.size()) ? Belongs::kUnclear : Belongs::kNo;
}

// More than once: what is being killed may be starting others, and has not ended before it is seen to have.
bool KillAll(const std::function<Belongs(pid_t)>& ours) {
  bool any = false;
  // A look at all processes may take as long as one likes on a machine that has many.
  const Instant end = After(SteadyNow(), kKillSeconds);
  do {
    bool again = false;
    for (const pid_t pid : Processes()) {
      const Belongs belongs = ours(pid);
      const bool killed = belongs == Belongs::kYes && kill(pid, SIGKILL) == 0;
      any |= killed;
      again |= killed || belongs == Belongs::kUnclear;
    }
    if (!again) break;
    usleep(kPauseMicroseconds);
  } while (SteadyNow() < end);
  return any;
}

}  // namespace

std::optional<std::string> StartTime(pid_t pid) {
  constexpr size_t kStartTime = 19;
  const std::vector<std::string> fields = StatFields(pid);
  return fields.size() > kStartTime ? std::optional(fields[kStartTime]) : std::nullopt;
}

std::string BootId() {
  std::istringstream text(ReadProc("/proc/sys/kernel/random/boot_id"));
  std::string id;
  text >> id;
  return id;
}

void KillSession(pid_t id) {
  KillAll([id](pid_t pid) { return MemberOf(pid, id); });
}

void KillContainer(pid_t id, const std::string& variable) {
  KillAll([&](pid_t pid) {
    const Belongs member = MemberOf(pid, id);
    return member == Belongs::kYes ? member : CarrierOf(pid, variable);
  });
}

bool KillOldSession(pid_t id, const std::string& start) {
  return StartTime(id) == start && KillAll([id](pid_t pid) { return MemberOf(pid, id); });
}

bool KillCarriers(const std::string& variable) {
  return KillAll([&](pid_t pid) { return CarrierOf(pid, variable); });
}

}  // namespace trainyard::local
