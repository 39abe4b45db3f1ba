#include "operator/reconcile/pod_groups.h"

#include <vector>

#include "operator/api/labels.h"
#include "operator/base/json_access.h"
#include "operator/reconcile/gang.h"
#include "operator/reconcile/obtain.h"
#include "operator/reconcile/worker_pod.h"

namespace trainyard::reconcile {
namespace {

// Whether `group` says what `wanted` does; the rest is the server's and the scheduler's.
bool Fits(const Json& group, const Json& wanted) {
  Json spec = json::Field(group, "spec");
  const Json before = spec;
  spec.merge_patch(wanted["spec"]);
  return spec == before;
}

// What a person can do about it.
std::string Remedy(const TrainingJob& job) {
  return "; spec.scheduling.gang is " + job.spec.scheduling.gang + ", which needs " + GangOf(job)->needs +
         "; it is tried again, and another gang may be chosen once the job is Suspended";
}

// The status as a problem to stay with, or as it is.
Status Judge(const Status& status, const TrainingJob& job, Problem& problem) {
  if (status.Is(Code::kNotFound)) {
    problem = {.reason = kGangUnavailable,
               .message = "the cluster has no " + GangOf(job)->groups.ApiVersion() + " PodGroup (" + status.message() +
                          ")" + Remedy(job)};
    return Status::Ok();
  }
  Status other = StayWith(status, "PodGroup", problem);
  if (problem.reason == kForbidden)
    problem.message +=
        "; the right to PodGroups is manifests/gangs.yaml, with Helm the value gangs." + job.spec.scheduling.gang;
  return other;
}

}  // namespace

Status PodGroups::Ensure(const TrainingJob& job, int64_t attempt, const ConfirmFunction& confirm, std::string& news,
                         Problem& problem) {
  Seen seen = seen_.Recall(job, attempt);
  if (!seen.at || SecondsBetween(*seen.at, clock_.Steady()) >= kGroupSeconds) {
    if (!seen.at) {
      Status status = MakeWay(job, attempt, confirm, problem);
      if (!status.ok() || !problem.reason.empty()) return status;
    }
    const Instant asked = clock_.Steady();
    Json group;
    if (Status status = Judge(Obtain(job, seen, group, problem), job, problem); !status.ok()) return status;
    if (!problem.reason.empty()) return Status::Ok();
    seen.at = asked;
    seen.news = GroupNews(group);
    seen_.Keep(job.Key(), seen);
  }
  news = seen.news;
  return Status::Ok();
}

Status PodGroups::MakeWay(const TrainingJob& job, int64_t attempt, const ConfirmFunction& confirm, Problem& problem) {
  if (Status status = confirm(); !status.ok()) return status;
  // Attempts count from 1, so nothing was before the first.
  if (attempt > 1) {
    Status status = Judge(DropOthers(job, attempt), job, problem);
    if (!status.ok() || !problem.reason.empty()) return status;
  }
  Forget(job.Key());  // that all are gone: one may be there, whatever the answer
  return Status::Ok();
}

// One of this attempt may be from before its spec changed, which it may until its first pod exists.
Status PodGroups::Obtain(const TrainingJob& job, const Seen& seen, Json& group, Problem& problem) {
  const Json wanted = PodGroup(job, seen.attempt);
  const bool expected = seen.at || job.status.workers.created > 0;
  const auto obtain = [&] {
    return reconcile::Obtain(client_, GangOf(job)->groups, job, wanted, expected, group, problem);
  };
  Status status = obtain();
  // One that someone has deleted stays for the pods that name it, and places them: Kubernetes puts a finalizer on it.
  if (IsGoing(group) && job.status.workers.created > 0) problem = {};
  if (!status.ok() || !problem.reason.empty() || Fits(group, wanted)) return status;
  if (status = Delete(job, group); !status.ok()) return status;
  return obtain();
}

Status PodGroups::DropOthers(const TrainingJob& job, int64_t attempt) {
  kube::ListOptions options{.label_selector = std::string(api::kLabelJobUid) + "=" + job.uid};
  if (attempt > 0) options.label_selector += "," + std::string(api::kLabelAttempt) + "!=" + std::to_string(attempt);
  std::vector<Json> groups;
  const auto on_group = [&](const Json& group) {
    if (OwnedBy(group, job.uid) && !IsGoing(group)) groups.push_back({{"metadata", group["metadata"]}});
  };
  const Status listed = client_.List(GangOf(job)->groups, job.ns, options, on_group).status();
  if (!listed.ok()) return listed.With("look for PodGroups");
  for (const Json& group : groups) {
    if (Status status = Delete(job, group); !status.ok()) return status;
  }
  return Status::Ok();
}

Status PodGroups::Drop(const TrainingJob& job) {
  if (seen_.Recall(job, 0).at) return Status::Ok();
  Status status = DropOthers(job, 0);
  if (!status.ok() && !status.Is(Code::kNotFound) && !status.Is(Code::kForbidden)) return status;
  seen_.Keep(job.Key(), {.uid = job.uid, .attempt = 0, .at = clock_.Steady(), .news = ""});
  return Status::Ok();
}

Status PodGroups::Delete(const TrainingJob& job, const Json& group) {
  const Json& metadata = group["metadata"];
  const std::string name = json::Text(metadata, "name");
  const Status status = client_.Delete(GangOf(job)->groups, job.ns, name, {.uid = json::Text(metadata, "uid")});
  // Another uid has the name: the one we meant is gone.
  if (status.ok() || status.Is(Code::kNotFound) || status.Is(Code::kConflict)) return Status::Ok();
  return status.With("delete PodGroup " + name);
}

}  // namespace trainyard::reconcile
