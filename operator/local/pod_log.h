// A container's log, for pods/log.
#ifndef TRAINYARD_OPERATOR_LOCAL_POD_LOG_H_
#define TRAINYARD_OPERATOR_LOCAL_POD_LOG_H_

#include <filesystem>
#include <fstream>
#include <memory>
#include <string>

#include "operator/base/status.h"
#include "operator/kube/client.h"

namespace trainyard::local {

using kube::Json;

// A container's log from a point on.
class LogSource {
 public:
  explicit LogSource(std::shared_ptr<std::ifstream> file) : file_(std::move(file)) {}
  // What was written since the last call; at most 64 KiB.
  std::string Read();

 private:
  std::shared_ptr<std::ifstream> file_;
};
// kInvalid, as the kubelet says it, when the container does not exist or has not started.
Result<LogSource> OpenLog(const std::filesystem::path& path, const Json& pod, const std::string& container,
                          const std::string& tail_lines, const std::string& limit_bytes);

bool ContainerRuns(const Json& pod, const std::string& container);

}  // namespace trainyard::local

#endif  // TRAINYARD_OPERATOR_LOCAL_POD_LOG_H_
