// Paths of the API.
#ifndef TRAINYARD_OPERATOR_LOCAL_API_ROUTE_H_
#define TRAINYARD_OPERATOR_LOCAL_API_ROUTE_H_

#include <optional>
#include <string>

#include "operator/local/api/memory_api.h"

namespace trainyard::local {

// What a path names.
struct Route {
  enum Kind { kObjects, kNamespaces, kCoreEvents, kReview } kind = kObjects;
  const Resource* resource = nullptr;  // of kObjects
  std::string ns, name, subresource;   // name: of kReview the kind
};
std::optional<Route> ParseRoute(const std::string& path);

}  // namespace trainyard::local

#endif  // TRAINYARD_OPERATOR_LOCAL_API_ROUTE_H_
