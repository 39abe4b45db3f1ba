#include "operator/reconcile/list_pods.h"

#include "operator/api/labels.h"
#include "operator/base/json_access.h"
#include "operator/reconcile/worker_pod.h"

namespace trainyard::reconcile {

bool IsShown(const api::TrainingJob& job, const api::Json& pod) {
  const api::Json& labels = json::Field(json::Field(pod, "metadata"), "labels");
  return json::Text(labels, api::kLabelManaged) == "true" && json::Text(labels, api::kLabelJobName) == job.name;
}

Status ListPods(kube::Client& client, const api::TrainingJob& job, const PodQuestion& question,
                const std::function<void(const api::Json& pod)>& on_pod) {
  kube::ListOptions options{.label_selector = std::string(api::kLabelJobUid) + "=" + job.uid,
                            .metadata_only = question.metadata_only};
  if (!question.labels.empty()) options.label_selector += "," + question.labels;
  const auto on_item = [&](const api::Json& pod) {
    if (OwnedBy(pod, job.uid)) on_pod(pod);
  };
  const Result<kube::ListEnd> listed = client.List(kube::kPods, job.ns, options, on_item);
  if (!listed.ok()) return listed.status();
  if (!listed->continue_token.empty())
    return Status(Code::kInternal, "the server gave a part of a list that was asked for as a whole");
  return Status::Ok();
}

}  // namespace trainyard::reconcile
