// What a client asks before it asks for objects: version, groups, resources, schemas.
#ifndef TRAINYARD_OPERATOR_LOCAL_API_DISCOVERY_H_
#define TRAINYARD_OPERATOR_LOCAL_API_DISCOVERY_H_

#include <optional>
#include <string>

#include "operator/kube/client.h"

namespace trainyard::local {

// The document at `path` (/version, /api, /apis, /apis/G/V, /api/v1, /openapi/v3...); nothing when it
// is none of these.
std::optional<kube::Json> DiscoveryDocument(const std::string& path);

}  // namespace trainyard::local

#endif  // TRAINYARD_OPERATOR_LOCAL_API_DISCOVERY_H_
