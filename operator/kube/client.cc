#include "operator/kube/client.h"

#include "operator/base/json_access.h"

namespace trainyard::kube {

const Resource kPods{"", "v1", "pods", "Pod"};
const Resource kServices{"", "v1", "services", "Service"};
const Resource kClaims{"", "v1", "persistentvolumeclaims", "PersistentVolumeClaim"};
const Resource kEvents{"events.k8s.io", "v1", "events", "Event"};
const Resource kLeases{"coordination.k8s.io", "v1", "leases", "Lease"};
const Resource kTrainingJobs{"trainyard.dev", "v1alpha1", "trainingjobs", "TrainingJob"};
const Resource kPodGroups{"scheduling.k8s.io", "v1alpha2", "podgroups", "PodGroup"};
const Resource kVolcanoPodGroups{"scheduling.volcano.sh", "v1beta1", "podgroups", "PodGroup"};
const Resource kCoschedulingPodGroups{"scheduling.x-k8s.io", "v1alpha1", "podgroups", "PodGroup"};

std::string Resource::Path(const std::string& ns) const {
  return (group.empty() ? "/api/" + version : "/apis/" + group + "/" + version) +
         (ns.empty() ? "" : "/namespaces/" + ns) + "/" + plural;
}

namespace {

constexpr double kQuotaWait = 0.2;  // seconds

bool HasCause(const Json& details, const char* reason) {
  for (const Json& cause : json::List(details, "causes")) {
    if (json::Text(cause, "reason") == reason) return true;
  }
  return false;
}

}  // namespace

Status StatusFromApi(int http, const Json& body) {
  const bool is_status = json::Text(body, "kind") == "Status";
  const std::string reason = is_status ? json::Text(body, "reason") : "";
  std::string message = is_status ? json::Text(body, "message") : "";
  if (message.empty()) message = "HTTP " + std::to_string(http);
  const bool of_quota = http == 409 && json::Text(json::Field(body, "details"), "kind") == "resourcequotas";
  const auto code = [&] {
    if (http == 504 && HasCause(json::Field(body, "details"), "ResourceVersionTooLarge")) return Code::kAhead;
    switch (http) {
      case 400:
      case 405:
      case 406:
      case 413:
      case 415:
      case 422:
        return Code::kInvalid;
      case 401:
        return Code::kUnauthorized;
      case 403:
        return Code::kForbidden;
      case 404:
        return Code::kNotFound;
      case 409:
        if (reason == "AlreadyExists") return Code::kAlreadyExists;
        // Several creations wanted to count themselves in one quota. None of ours is old, and nothing was created.
        return of_quota ? Code::kThrottled : Code::kConflict;
      case 410:
        return Code::kGone;
      case 429:
        return Code::kThrottled;
      default:
        return http >= 500 ? Code::kUnavailable : Code::kInternal;
    }
  }();
  Status status(code, message);
  if (const int64_t seconds = json::Whole(json::Field(body, "details"), "retryAfterSeconds"); seconds > 0)
    status.set_retry_after_seconds(static_cast<double>(seconds));
  if (of_quota && !status.retry_after_seconds()) status.set_retry_after_seconds(kQuotaWait);
  return status;
}

}  // namespace trainyard::kube
