#include "operator/local/api/route.h"

#include <vector>

namespace trainyard::local {

std::optional<Route> ParseRoute(const std::string& path) {
  std::vector<std::string> parts;
  for (size_t begin = 1; begin <= path.size();) {
    const size_t end = std::min(path.find('/', begin), path.size());
    if (end > begin) parts.push_back(path.substr(begin, end - begin));
    begin = end + 1;
  }
  std::string group, version;
  size_t at = 0;
  if (parts.size() >= 3 && parts[0] == "api") {
    version = parts[1];
    at = 2;
  } else if (parts.size() >= 4 && parts[0] == "apis") {
    group = parts[1];
    version = parts[2];
    at = 3;
  } else {
    return std::nullopt;
  }
  Route route;
  if (parts[at] == "namespaces" && parts.size() - at >= 3) {
    route.ns = parts[at + 1];
    at += 2;
  } else if (parts[at] == "namespaces" && group.empty()) {
    route.kind = Route::kNamespaces;
    if (parts.size() > at + 1) route.name = parts[at + 1];
    return route;
  }
  const std::string plural = parts[at++];
  if (group == "authorization.k8s.io" && version == "v1" && at == parts.size()) {
    route.kind = Route::kReview;
    route.name = plural;
    return route;
  }
  if (group.empty() && plural == "events") {
    route.kind = Route::kCoreEvents;
    return route;
  }
  route.resource = MemoryApi::FindResource(group, version, plural);
  if (!route.resource) return std::nullopt;
  if (at < parts.size()) route.name = parts[at++];
  if (at < parts.size()) route.subresource = parts[at++];
  if (at < parts.size()) return std::nullopt;
  return route;
}

}  // namespace trainyard::local
