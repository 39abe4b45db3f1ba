#include "operator/reconcile/obtain.h"

#include "operator/base/json_access.h"
#include "operator/reconcile/worker_pod.h"

namespace trainyard::reconcile {

Status Obtain(kube::Client& client, const kube::Resource& resource, const api::TrainingJob& job,
              const api::Json& wanted, bool expected, api::Json& object, Problem& problem) {
  const std::string name = json::Text(json::Field(wanted, "metadata"), "name");
  const std::string what = resource.kind == "Service" ? "service" : resource.kind;
  const char* verb = "";
  const auto get = [&] {
    verb = "get ";
    return client.Get(resource, job.ns, name);
  };
  const auto create = [&] {
    verb = "create ";
    return client.Create(resource, job.ns, wanted, {});
  };
  Result<Json> found = expected ? get() : create();
  if (expected && found.status().Is(Code::kNotFound)) found = create();
  if (found.status().Is(Code::kAlreadyExists)) found = get();
  if (!found.ok()) return found.status().With(verb + what + " " + name);
  const bool ours = OwnedBy(*found, job.uid);
  if (!ours || IsGoing(*found)) problem = TakenBy(what, *found);
  if (ours) object = std::move(*found);
  return Status::Ok();
}

}  // namespace trainyard::reconcile
