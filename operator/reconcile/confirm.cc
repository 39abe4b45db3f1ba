#include "operator/reconcile/confirm.h"

#include <algorithm>
#include <map>
#include <set>
#include <string>
#include <vector>

#include "operator/api/labels.h"
#include "operator/base/json_access.h"
#include "operator/reconcile/list_pods.h"
#include "operator/reconcile/observe.h"
#include "operator/reconcile/policies.h"
#include "operator/reconcile/problem.h"
#include "operator/reconcile/worker_pod.h"

namespace trainyard::reconcile {
namespace {

constexpr size_t kMostAskedByName = 16;

}  // namespace

Status ConfirmStale(kube::Client& client, const Observed& observed) {
  const TrainingJob& job = observed.job;
  const auto ahead = [&](const std::vector<Pod>& pods) {
    return std::any_of(pods.begin(), pods.end(), [&](const Pod& pod) { return pod->attempt > job.status.attempt; });
  };
  if (!ahead(observed.stale) && !ahead(observed.spent)) return Status::Ok();
  const Result<Json> live = client.Get(kube::kTrainingJobs, job.ns, job.name, FieldsOfConfirmed());
  if (!live.ok()) return live.status().With("look at the job's attempt");
  if (json::Whole(json::Field(*live, "status"), "attempt") == job.status.attempt) return Status::Ok();
  return Status(Code::kConflict, "the cached job is older than its pods");
}

Status ConfirmMissing(kube::Client& client, Observed& observed) {
  const TrainingJob& job = observed.job;
  if (observed.missing.empty()) return Status::Ok();
  std::map<std::string, int64_t> missing;
  for (const int64_t worker : observed.missing)
    missing.emplace(api::PodName(job.name, job.status.attempt, worker), worker);
  std::string labelled;
  const auto look = [&](const Json& pod) {
    const Json& metadata = json::Field(pod, "metadata");
    const std::string name = json::Text(metadata, "name");
    const auto found = missing.find(name);
    if (found == missing.end()) return;
    const Json& labels = json::Field(metadata, "labels");
    const Json wanted = WorkerLabels(job, job.status.attempt, found->second);
    bool same = true;
    for (const auto& [label, value] : wanted.items()) same &= json::Text(labels, label.c_str()) == value;
    if (same) labelled = name;
    observed.unlabelled.push_back({name, json::Text(metadata, "uid"), found->second});
    missing.erase(found);
  };
  const Status listed = ListPods(client, job, {.labels = "", .metadata_only = true}, look);
  if (!listed.ok()) return listed.With("look for missing pods");
  // The label that the list goes by may be gone as well, mostly of all pods that someone has touched: some names do.
  std::vector<std::string> names;
  for (const auto& [name, worker] : missing) names.push_back(name);
  names.resize(std::min(names.size(), kMostAskedByName));
  for (const std::string& name : names) {
    const Result<Json> pod = client.Get(kube::kPods, job.ns, name, FieldsOfPod());
    if (pod.ok() && OwnedBy(*pod, job.uid)) look(*pod);
    if (!pod.ok() && !pod.status().Is(Code::kNotFound)) return pod.status().With("look for missing pods");
  }
  if (!labelled.empty()) return Status(Code::kConflict, "pod " + labelled + " is not in the cache yet");
  return Status::Ok();
}

Status ConfirmAtRest(kube::Client& client, const Observed& observed) {
  const TrainingJob& job = observed.job;
  if (!IsAtRest(observed) || !observed.unlabelled.empty()) return Status::Ok();
  std::set<std::string> spent;
  for (const Pod& pod : observed.spent) spent.insert(pod->name);
  std::string left, hidden;
  const Status listed = ListPods(client, job, {.labels = "", .metadata_only = true}, [&](const Json& pod) {
    const std::string name = json::Text(json::Field(pod, "metadata"), "name");
    if (!spent.contains(name)) (IsShown(job, pod) ? left : hidden) = name;
  });
  if (!listed.ok()) return listed.With("confirm that no pod is left");
  if (!left.empty()) return Status(Code::kConflict, "pod " + left + " is not in the cache yet");
  if (!hidden.empty()) return LeftWithoutLabel(hidden, job.name);
  return Status::Ok();
}

}  // namespace trainyard::reconcile
