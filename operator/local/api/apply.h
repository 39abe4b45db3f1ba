// Server-side apply, as far as one person with kubectl on one machine needs it: who set which leaf,
// conflicts, and removal of what a manager no longer sets. Lists are leaves (they are atomic here).
// Source: kubernetes.io/docs/reference/using-api/server-side-apply, fieldsV1.
#ifndef TRAINYARD_OPERATOR_LOCAL_API_APPLY_H_
#define TRAINYARD_OPERATOR_LOCAL_API_APPLY_H_

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "operator/base/clock.h"

namespace trainyard::local {

using Json = nlohmann::json;

// `atomic`: maps that are one leaf, whatever they hold, as JSON pointers.

// `managed` (metadata.managedFields) with the entry of `manager` set to the leaves of `config`.
Json ManagedFields(const Json& config, Json managed, const std::string& manager, const std::string& api_version,
                   Time now, const std::vector<std::string>& atomic);

// Makes `next` of `old`: `config` merged in, leaves that `manager` set before and no longer does removed
// unless someone else also set them. Returns the conflict's message, or empty.
std::string Apply(const Json& old, const Json& config, const std::string& manager, bool force,
                  const std::string& api_version, Time now, const std::vector<std::string>& atomic, Json& next);

}  // namespace trainyard::local

#endif  // TRAINYARD_OPERATOR_LOCAL_API_APPLY_H_
