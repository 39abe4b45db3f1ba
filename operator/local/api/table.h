// meta.k8s.io/v1 Table: what `kubectl get` prints.
#ifndef TRAINYARD_OPERATOR_LOCAL_API_TABLE_H_
#define TRAINYARD_OPERATOR_LOCAL_API_TABLE_H_

#include <vector>

#include "operator/base/clock.h"
#include "operator/kube/client.h"

namespace trainyard::local {

using kube::Json;

// Rows for `objects`; with `headers`, the column definitions too (a watch sends them once).
Json MakeTable(const kube::Resource& resource, const std::vector<Json>& objects, const std::string& version,
               bool headers, Time now);

}  // namespace trainyard::local

#endif  // TRAINYARD_OPERATOR_LOCAL_API_TABLE_H_
