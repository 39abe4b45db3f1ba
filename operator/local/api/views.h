// Answers of the API that are views of what it holds.
#ifndef TRAINYARD_OPERATOR_LOCAL_API_VIEWS_H_
#define TRAINYARD_OPERATOR_LOCAL_API_VIEWS_H_

#include <string>

#include "operator/local/api/memory_api.h"

namespace trainyard::local {

// core/v1 Events, which `kubectl describe` and `kubectl get events` read, made of the events.k8s.io ones.
ApiResult CoreEvents(const MemoryApi& api, const std::string& ns, const std::string& field_selector);

// The namespaces that hold something, and default.
ApiResult NamespaceAnswer(const MemoryApi& api, const std::string& name);

}  // namespace trainyard::local

#endif  // TRAINYARD_OPERATOR_LOCAL_API_VIEWS_H_
