// The options in a request's query, read and checked as kube-apiserver does.
// Source: kubernetes.io/docs/reference/generated/kubernetes-api, the operations' query parameters.
#ifndef TRAINYARD_OPERATOR_LOCAL_API_REQUEST_OPTIONS_H_
#define TRAINYARD_OPERATOR_LOCAL_API_REQUEST_OPTIONS_H_

#include <functional>
#include <string>
#include <vector>

#include "operator/local/api/memory_api.h"

namespace trainyard::local {

// All values of a parameter; none when it is absent.
using Query = std::function<std::vector<std::string>(const std::string& name)>;

// Each fills `options` in, or is 400 or 422 with the parameter's name, value and what is allowed.
// `kind`: CreateOptions, UpdateOptions or PatchOptions, which the error is about.
ApiResult ReadWriteOptions(const Query& query, const std::string& kind, WriteRequest& options);
// `body`: the DeleteOptions in the request's body, an empty object when there is none; it wins over the query.
ApiResult ReadDeleteOptions(const Query& query, const Json& body, DeleteRequest& options);
struct ListRequest {
  kube::ListOptions options;
  std::string match;  // resourceVersionMatch: Exact, NotOlderThan or empty
};
ApiResult ReadListOptions(const Query& query, ListRequest& request);

struct WatchRequest {
  ListRequest list;
  bool bookmarks = false, initial_events = false;
  double timeout_seconds = 1800;
};
ApiResult ReadWatchOptions(const Query& query, WatchRequest& request);

}  // namespace trainyard::local

#endif  // TRAINYARD_OPERATOR_LOCAL_API_REQUEST_OPTIONS_H_
