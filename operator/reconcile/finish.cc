#include <algorithm>

#include "operator/reconcile/conditions.h"
#include "operator/reconcile/culprit.h"
#include "operator/reconcile/policies.h"

namespace trainyard::reconcile {
namespace {

void End(const Observed& observed, Plan& plan, const char* phase, Time now) {
  api::JobStatus& status = plan.status;
  status.phase = phase;
  status.completion_time = now;
  for (const char* type : {kReadyCondition, kRunningCondition, kRestartingCondition})
    ClearCondition(status, type, phase, "", now, observed.job.generation);
}

}  // namespace

bool IsFinished(const api::JobStatus& status) {
  return IsTrue(status, kSucceededCondition) || IsTrue(status, kFailedCondition);
}

bool HasSucceeded(const Observed& observed) {
  return observed.job.status.attempt > 0 && !observed.current.empty() &&
         std::all_of(observed.current.begin(), observed.current.end(),
                     [](const Pod& pod) { return pod && pod->end && !IsFailure(*pod); });
}

Plan Succeed(const Observed& observed, Plan plan, Time now) {
  api::JobStatus& status = plan.status;
  End(observed, plan, api::kSucceeded, now);
  // Rank 0's last words are newer than its last answer, which a short run may never have given.
  api::Progress& progress = status.progress;
  if (const int64_t last = observed.current.front()->end->words.step; last > 0) progress.step = last;
  progress.total_steps = std::max(progress.total_steps, progress.step);
  if (progress.total_steps > 0)
    progress.percent = 100 * progress.step / progress.total_steps;  // less: it stopped early
  progress.eta_seconds = 0;
  const std::string message = "all " + std::to_string(observed.job.spec.workers) + " workers ended with 0";
  SetCondition(status, kSucceededCondition, true, "AllWorkersSucceeded", message, now, observed.job.generation);
  plan.events.push_back({"Normal", "Succeeded", message});
  return plan;
}

Plan Fail(const Observed& observed, Plan plan, const std::string& reason, const std::string& message, Time now) {
  End(observed, plan, api::kFailed, now);
  SetCondition(plan.status, kFailedCondition, true, reason, message, now, observed.job.generation);
  plan.events.push_back({"Warning", "Failed", reason + ": " + message});
  return plan;
}

Plan KeepFinished(const Observed& observed, Plan plan) {
  const std::string& policy = observed.job.spec.clean_pod_policy;
  if (policy == "None") return plan;
  std::vector<Pod> pods = observed.stale;
  pods.insert(pods.end(), observed.current.begin(), observed.current.end());
  for (const Pod& pod : pods) {
    if (pod && !pod->deleting && (policy == "All" || !pod->end)) plan.deletes.push_back({pod->name, pod->uid});
  }
  return plan;
}

}  // namespace trainyard::reconcile
