#include "operator/local/pod_log.h"

#include <algorithm>

#include "operator/base/json_access.h"

namespace trainyard::local {
namespace {

constexpr double kNoteSeconds = 1;

const Json* FindContainer(const Json& statuses, const std::string& name) {
  for (const Json& status : statuses) {
    if (json::Text(status, "name") == name) return &status;
  }
  return nullptr;
}

// Where the last `lines` lines begin.
std::streamoff TailOffset(std::ifstream& file, int64_t lines) {
  file.seekg(0, std::ios::end);
  std::streamoff at = file.tellg();
  for (int64_t seen = -1; at > 0; --at) {
    file.seekg(at - 1);
    if (file.get() == '\n' && ++seen == lines) break;
  }
  return at;
}

std::filesystem::path TimesOf(std::filesystem::path log) { return log += ".times"; }

// Where the first growth at `since` or later began; the end when there was none.
std::streamoff OffsetAt(const std::filesystem::path& log, Time since) {
  std::ifstream times(TimesOf(log));
  if (!times) return 0;  // of a version without
  std::string time;
  std::streamoff offset = 0;
  while (times >> time >> offset) {
    if (ParseTime(time).value_or(since) >= After(since, -kNoteSeconds)) return offset;
  }
  std::error_code error;
  return static_cast<std::streamoff>(std::filesystem::file_size(log, error));
}

}  // namespace

void LogTimes::Note(Time now) {
  if (!noted_ || SecondsBetween(*noted_, now) >= kNoteSeconds) NoteEnd(now);
}

void LogTimes::NoteEnd(Time now) {
  std::error_code error;
  const uintmax_t size = std::filesystem::file_size(log_, error);
  if (error || size == size_) return;
  std::ofstream(TimesOf(log_), std::ios::app) << FormatTime(now) << ' ' << size_ << '\n';
  size_ = size;
  noted_ = now;
}

std::string LogSource::Read() {
  std::string text(64 << 10, '\0');
  file_->clear();  // the end of a moment ago
  file_->read(text.data(), static_cast<std::streamsize>(text.size()));
  text.resize(static_cast<size_t>(file_->gcount()));
  return text;
}

Result<LogSource> OpenLog(const std::filesystem::path& path, const Json& pod, const std::string& container,
                          const LogOptions& options) {
  const std::string pod_name = pod["metadata"]["name"];
  const Json* main = FindContainer(json::List(json::Field(pod, "spec"), "containers"), container);
  const Json* init = FindContainer(json::List(json::Field(pod, "spec"), "initContainers"), container);
  if (!main && !init) return Status(Code::kInvalid, "container " + container + " is not valid for pod " + pod_name);
  auto file = std::make_shared<std::ifstream>(path, std::ios::binary);
  if (!*file) {
    return Status(Code::kInvalid, "container \"" + container + "\" in pod \"" + pod_name + "\" is waiting to start");
  }
  const std::streamoff since = options.since ? OffsetAt(path, *options.since) : 0;
  const std::streamoff tail = options.tail_lines ? TailOffset(*file, std::max<int64_t>(0, *options.tail_lines)) : 0;
  file->clear();
  file->seekg(std::max(since, tail));
  return LogSource(std::move(file));
}

bool ContainerRuns(const Json& pod, const std::string& container) {
  for (const char* list : {"/status/containerStatuses", "/status/initContainerStatuses"}) {
    if (const Json statuses = pod.value(Json::json_pointer(list), Json::array());
        const Json* status = FindContainer(statuses, container)) {
      return !json::Field(*status, "state").contains("terminated");
    }
  }
  return false;
}

}  // namespace trainyard::local
