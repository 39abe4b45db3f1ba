#include "trainer/train/running_mark.h"

#include <fcntl.h>
#include <sys/file.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <nlohmann/json.hpp>

#include "trainer/base/environment.h"
#include "trainer/base/text.h"
#include "trainer/base/utf8.h"
#include "trainer/launch/report_channel.h"

namespace trainyard {
namespace {

using Json = nlohmann::json;
namespace fs = std::filesystem;

constexpr size_t kMostBytes = 4096;

fs::path MarkOf(const fs::path& run_dir) { return run_dir / "running"; }

std::string HostName() {
  char name[256] = "";
  gethostname(name, sizeof name - 1);
  return ValidUtf8(name);
}

// What stands in the file when somebody holds it.
std::string ReadIfHeld(const fs::path& file) {
  const int fd = open(file.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK);
  if (fd < 0) return "";
  const bool held = flock(fd, LOCK_SH | LOCK_NB) != 0 && errno == EWOULDBLOCK;
  char text[kMostBytes];
  const ssize_t size = held ? read(fd, text, sizeof text) : 0;
  close(fd);
  return {text, static_cast<size_t>(std::max<ssize_t>(size, 0))};
}

}  // namespace

std::string RunningMark::Holder(const fs::path& run_dir) {
  const Json json = Json::parse(ReadIfHeld(MarkOf(run_dir)), nullptr, false);
  if (!json.is_object() || !json.value("attempt", Json()).is_number() || !json.value("process", Json()).is_number() ||
      !json.value("host", Json()).is_string())
    return "";
  return Format("attempt %lld (process %lld on %s)", json["attempt"].get<long long>(), json["process"].get<long long>(),
                json["host"].get<std::string>().c_str());
}

// The lock is there before the name is, and a predecessor keeps the one on its own file.
RunningMark::RunningMark(const fs::path& run_dir, int64_t attempt) {
  const fs::path temporary = MarkOf(run_dir).string() + ".tmp";
  std::error_code ignored;
  fs::remove(temporary, ignored);
  fd_ = open(temporary.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0644);
  if (fd_ < 0) return;
  const bool launched = !EnvText(kReportFdVariable).empty();  // The launcher is what a person ends.
  const Json json = {{"attempt", attempt}, {"host", HostName()}, {"process", launched ? getppid() : getpid()}};
  const std::string text = json.dump() + "\n";
  if (flock(fd_, LOCK_EX | LOCK_NB) == 0 && write(fd_, text.data(), text.size()) == static_cast<ssize_t>(text.size()))
    fs::rename(temporary, MarkOf(run_dir), ignored);
  else
    fs::remove(temporary, ignored);
}

RunningMark::~RunningMark() {
  if (fd_ >= 0) close(fd_);
}

}  // namespace trainyard
