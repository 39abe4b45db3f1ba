// What the API server answers: an HTTP status code with a body, and the failures in its words.
#ifndef TRAINYARD_OPERATOR_LOCAL_API_API_RESULT_H_
#define TRAINYARD_OPERATOR_LOCAL_API_API_RESULT_H_

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "operator/api/schema.h"
#include "operator/kube/client.h"

namespace trainyard::local {

using kube::Json;
using kube::Resource;

// The body is an object, a list or a metav1.Status.
struct ApiResult {
  int http = 200;
  Json body;
  std::vector<std::string> warnings;  // unknown fields that were dropped
  bool ok() const { return http < 300; }
};

// The constructors of failures: each a metav1.Status with the reason that client-go's IsNotFound and its
// siblings look at, and with details, which some clients take for granted.
ApiResult Failure(int http, const std::string& reason, const std::string& message);
ApiResult BadRequest(const std::string& message);
// 404 for a path that is none of the API's.
ApiResult NoSuchPath();
ApiResult MethodNotAllowed();
// 415; `accepted`: the types that a body may have, with commas.
ApiResult UnsupportedMediaType(const std::string& accepted);
ApiResult NotFound(const Resource& resource, const std::string& name);
// `going`: the object in the way has a deletionTimestamp.
ApiResult AlreadyExists(const Resource& resource, const std::string& name, bool going);
// 409: `why` completes "Operation cannot be fulfilled on ...: ".
ApiResult Conflict(const Resource& resource, const std::string& name, const std::string& why);
// 422, one cause a field.
ApiResult Invalid(const Resource& resource, const std::string& name, const std::vector<api::Cause>& causes);

}  // namespace trainyard::local

#endif  // TRAINYARD_OPERATOR_LOCAL_API_API_RESULT_H_
