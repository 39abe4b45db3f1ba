// What kube-apiserver lets a pod become once it is there. Source: ValidatePodUpdate of pkg/apis/core/validation.
#ifndef TRAINYARD_OPERATOR_LOCAL_API_POD_UPDATE_H_
#define TRAINYARD_OPERATOR_LOCAL_API_POD_UPDATE_H_

#include <vector>

#include "operator/api/schema.h"

namespace trainyard::local {

using Json = nlohmann::json;

// Why the spec of a pod may not become `now`; empty when it may. Both fit the pod's schema and have their defaults.
// What a real server's binding does is allowed here too: a node's name for a pod that has none.
std::vector<api::Cause> CheckPodUpdate(const Json& before, const Json& now);

// Of a pod's status, for schema.h: the types of what the node, the operator and kubectl read.
const Json& PodStatusSchema();

}  // namespace trainyard::local

#endif  // TRAINYARD_OPERATOR_LOCAL_API_POD_UPDATE_H_
