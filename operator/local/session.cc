#include "operator/local/session.h"

#include <unistd.h>

#include <charconv>
#include <csignal>
#include <filesystem>
#include <fstream>
#include <functional>
#include <iterator>
#include <sstream>
#include <vector>

namespace trainyard::local {
namespace {

constexpr int kPasses = 100, kPauseMicroseconds = 10000;

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

// The processes of session `id` that have not ended.
std::vector<pid_t> Members(pid_t id) {
  constexpr size_t kState = 0, kSession = 3;
  std::vector<pid_t> members;
  std::error_code error;
  for (const auto& entry : std::filesystem::directory_iterator("/proc", error)) {
    const std::string name = entry.path().filename().string();
    pid_t pid = 0;
    if (std::from_chars(name.data(), name.data() + name.size(), pid).ptr != name.data() + name.size()) continue;
    const std::vector<std::string> fields = StatFields(pid);
    if (fields.size() > kSession && fields[kState] != "Z" && fields[kSession] == std::to_string(id))
      members.push_back(pid);
  }
  return members;
}

bool Carries(pid_t pid, const std::string& variable) {
  const std::string text = '\0' + ReadProc(pid, "environ") + '\0';
  return text.find('\0' + variable + '\0') != std::string::npos;
}

// More than once: what is being killed may be starting others.
bool KillMembers(pid_t id, const std::function<bool(pid_t)>& ours) {
  bool any = false;
  for (int pass = 0; pass < kPasses; ++pass) {
    bool left = false;
    for (const pid_t pid : Members(id)) {
      if (ours(pid) && kill(pid, SIGKILL) == 0) left = true;
    }
    if (!left) break;
    any = true;
    usleep(kPauseMicroseconds);
  }
  return any;
}

}  // namespace

std::optional<std::string> StartTime(pid_t pid) {
  constexpr size_t kStartTime = 19;
  const std::vector<std::string> fields = StatFields(pid);
  return fields.size() > kStartTime ? std::optional(fields[kStartTime]) : std::nullopt;
}

void KillSession(pid_t id) {
  KillMembers(id, [](pid_t) { return true; });
}

bool KillOldSession(pid_t id, const std::string& start, const std::string& variable) {
  const bool leads = StartTime(id) == start;
  return KillMembers(id, [&](pid_t pid) { return leads || Carries(pid, variable); });
}

}  // namespace trainyard::local
