// Paths of the API, and the answers that are views rather than objects.
#ifndef TRAINYARD_OPERATOR_LOCAL_ROUTE_H_
#define TRAINYARD_OPERATOR_LOCAL_ROUTE_H_

#include <filesystem>
#include <fstream>
#include <memory>
#include <optional>
#include <string>

#include "operator/local/memory_api.h"

namespace trainyard::local {

// What a path names.
struct Route {
  enum Kind { kObjects, kNamespaces, kCoreEvents } kind = kObjects;
  const Resource* resource = nullptr;
  std::string ns, name, subresource;
};
std::optional<Route> ParseRoute(const std::string& path);

// core/v1 Events, which `kubectl describe` reads, made of the events.k8s.io ones.
ApiResult CoreEvents(const MemoryApi& api, const std::string& ns, const std::string& field_selector);

// The namespaces that hold something, and default.
ApiResult NamespaceAnswer(const MemoryApi& api, const std::string& name);

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

#endif  // TRAINYARD_OPERATOR_LOCAL_ROUTE_H_
