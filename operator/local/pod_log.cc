#include "operator/local/pod_log.h"

#include <algorithm>

#include "operator/base/json_access.h"

namespace trainyard::local {
namespace {

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

}  // namespace

std::string LogSource::Read() {
  std::string text(64 << 10, '\0');
  file_->clear();  // the end of a moment ago
  file_->read(text.data(), static_cast<std::streamsize>(text.size()));
  text.resize(static_cast<size_t>(file_->gcount()));
  return text;
}

Result<LogSource> OpenLog(const std::filesystem::path& path, const Json& pod, const std::string& container,
                          const std::string& tail_lines, const std::string& limit_bytes) {
  if (!limit_bytes.empty()) return Status(Code::kInvalid, "limitBytes is not supported here");
  const std::string pod_name = pod["metadata"]["name"];
  const Json* main = FindContainer(json::List(json::Field(pod, "spec"), "containers"), container);
  const Json* init = FindContainer(json::List(json::Field(pod, "spec"), "initContainers"), container);
  if (!main && !init) return Status(Code::kInvalid, "container " + container + " is not valid for pod " + pod_name);
  auto file = std::make_shared<std::ifstream>(path, std::ios::binary);
  if (!*file) {
    return Status(Code::kInvalid, "container \"" + container + "\" in pod \"" + pod_name + "\" is waiting to start");
  }
  if (!tail_lines.empty()) file->seekg(TailOffset(*file, std::max<int64_t>(0, std::atoll(tail_lines.c_str()))));
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
