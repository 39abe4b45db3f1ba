#include "operator/local/node/session.h"

#include <unistd.h>

#include <charconv>
#include <csignal>
#include <filesystem>
#include <fstream>
#include <functional>
#include <iterator>
#include <sstream>
#include <vector>

#include "operator/base/clock.h"

namespace trainyard::local {
namespace {

constexpr double kKillSeconds = 1;
constexpr int kPauseMicroseconds = 10000;

std::string ReadProc(pid_t pid, const char* file) {
  std::ifstream stream("/proc/" + std::to_string(pid) + "/" + file, std::ios::binary);
  return std::string(std::istreambuf_iterator<char>(stream), {});
}

// The fields of /proc/PID/stat from the third, the state, on (proc(5)); empty when there is no such process.
std::vector<std::string> StatFields(pid_t pid) {
  const std::string text = ReadProc(pid, "stat");
  // The second, the name, may hold anything up to the last parenthesis.
  const size_t name = text.rfind(')');
  if (name == std::string::npos) return {};
  std::istringstream rest(text.substr(name + 1));
  return {std::istream_iterator<std::string>(rest), {}};
}

// Those for which `ours` holds, but for this one, which would end nothing more if it ended itself.
std::vector<pid_t> Processes(const std::function<bool(pid_t)>& ours) {
  std::vector<pid_t> found;
  std::error_code error;
  std::filesystem::directory_iterator entry("/proc", error);
  for (; !error && entry != std::filesystem::directory_iterator(); entry.increment(error)) {
    const std::string name = entry->path().filename().string();
    pid_t pid = 0;
    if (std::from_chars(name.data(), name.data() + name.size(), pid).ptr != name.data() + name.size()) continue;
    if (pid != getpid() && ours(pid)) found.push_back(pid);
  }
  return found;
}

// Of a process whose first thread has ended all say that it has, while others of it run on.
bool RunsWithoutItsFirst(const std::vector<std::string>& fields) {
  constexpr size_t kState = 0, kThreads = 17;
  return fields.size() > kThreads && fields[kState] == "Z" && fields[kThreads] != "1";
}

// Whether it has not ended and is of session `id`.
bool IsMember(pid_t pid, pid_t id) {
  constexpr size_t kState = 0, kSession = 3;
  const std::vector<std::string> fields = StatFields(pid);
  return fields.size() > kSession && fields[kSession] == std::to_string(id) &&
         (fields[kState] != "Z" || RunsWithoutItsFirst(fields));
}

std::string EnvironmentOf(pid_t pid) {
  if (std::string own = ReadProc(pid, "environ"); !own.empty()) return own;
  if (!RunsWithoutItsFirst(StatFields(pid))) return "";
  std::error_code error;
  std::filesystem::directory_iterator thread("/proc/" + std::to_string(pid) + "/task", error);
  for (; !error && thread != std::filesystem::directory_iterator(); thread.increment(error)) {
    std::ifstream stream(thread->path() / "environ", std::ios::binary);
    std::string text(std::istreambuf_iterator<char>(stream), {});
    if (!text.empty()) return text;
  }
  return "";
}

// What has ended carries nothing.
bool Carries(pid_t pid, const std::string& variable) {
  const std::string text = '\0' + EnvironmentOf(pid) + '\0';
  return text.find('\0' + variable + '\0') != std::string::npos;
}

// More than once: what is being killed may be starting others.
bool KillAll(const std::function<bool(pid_t)>& ours) {
  bool any = false;
  // A look at all processes may take as long as one likes on a machine that has many.
  const Instant end = After(SteadyNow(), kKillSeconds);
  do {
    bool left = false;
    for (const pid_t pid : Processes(ours)) {
      if (kill(pid, SIGKILL) == 0) left = true;
    }
    if (!left) break;
    any = true;
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
  std::ifstream stream("/proc/sys/kernel/random/boot_id");
  std::string id;
  stream >> id;
  return id;
}

void KillSession(pid_t id) {
  KillAll([id](pid_t pid) { return IsMember(pid, id); });
}

void KillContainer(pid_t id, const std::string& variable) {
  KillAll([&](pid_t pid) { return IsMember(pid, id) || Carries(pid, variable); });
}

bool KillOldSession(pid_t id, const std::string& start) {
  return StartTime(id) == start && KillAll([id](pid_t pid) { return IsMember(pid, id); });
}

bool KillCarriers(const std::string& variable) {
  return KillAll([&](pid_t pid) { return Carries(pid, variable); });
}

}  // namespace trainyard::local
