#include <algorithm>

#include "operator/reconcile/conditions.h"
#include "operator/reconcile/culprit.h"
#include "operator/reconcile/gang.h"
#include "operator/reconcile/policies.h"

namespace trainyard::reconcile {
namespace {

constexpr char kRankZero[] = "RankZero";

// Rank 0's last words are newer than its last answer, which a short run may never have given.
void TakeLastWords(const PodRecord& first, api::Progress& progress) {
  const std::optional<int64_t> last = first.end->words.step;
  if (!last) return;
  if (progress.step != last) progress.loss.reset();  // it is an older step's
  progress.step = last;
  progress.total_steps = std::max(progress.total_steps, progress.step);
  if (*progress.total_steps > 0) progress.percent = 100 * *last / *progress.total_steps;  // less: it stopped early
  progress.eta_seconds = 0;
}

void End(const Observed& observed, Plan& plan, const char* phase, Time now) {
  api::JobStatus& status = plan.status;
  status.phase = phase;
  status.completion_time = now;
  status.progress.eta_seconds.reset();
  for (const char* type :
       {kWorkersReadyCondition, kRunningCondition, kRestartingCondition, kStalledCondition, kProgressUnknownCondition})
    ClearCondition(status, type, phase, "", now, observed.job.generation);
}

// Those that are on their way out may still look for each other.
bool AnyRuns(const std::vector<Pod>& pods) {
  return std::any_of(pods.begin(), pods.end(), [](const Pod& pod) { return pod && !pod->over; });
}

}  // namespace

bool HadMaster(const TrainingJob& job) { return job.status.attempt > 0 && job.spec.rendezvous != api::kByName; }

bool IsFinished(const api::JobStatus& status) {
  return IsTrue(status, kCompleteCondition) || IsTrue(status, kFailedCondition);
}

bool HasSucceeded(const Observed& observed) {
  if (observed.job.status.attempt == 0 || observed.current.empty()) return false;
  const size_t needed = observed.job.spec.success_policy == kRankZero ? 1 : observed.current.size();
  for (size_t i = 0; i < needed; ++i) {
    const Pod& pod = observed.current[i];
    if (!observed.done.contains(static_cast<int64_t>(i)) && !(pod && pod->end && !IsFailure(*pod))) return false;
  }
  return true;
}

Plan Succeed(const Observed& observed, Plan plan, Time now) {
  api::JobStatus& status = plan.status;
  End(observed, plan, api::kSucceeded, now);
  if (const Pod& first = observed.current.front(); first && first->end) TakeLastWords(*first, status.progress);
  const bool rank_zero = observed.job.spec.success_policy == kRankZero;
  const std::string message = rank_zero ? "worker 0 ended with 0, and spec.successPolicy is RankZero"
                                        : "all " + std::to_string(observed.current.size()) + " workers ended with 0";
  SetCondition(status, kCompleteCondition, true, rank_zero ? "RankZeroSucceeded" : "AllWorkersSucceeded", message, now,
               observed.job.generation);
  plan.events.push_back({"Normal", "Succeeded", message});
  return plan;
}

Plan Fail(const Observed& observed, Plan plan, const std::string& reason, const std::string& message, Time now) {
  End(observed, plan, api::kFailed, now);
  SetCondition(plan.status, kFailedCondition, true, reason, message, now, observed.job.generation);
  plan.events.push_back({"Warning", "Failed", reason + ": " + message});
  return plan;
}

Plan KeepFinished(const Observed& observed, Plan plan, Time now) {
  plan.status.observed_generation = observed.job.generation;
  DeleteInTime(observed.job, plan, now);
  plan.drops_groups = GangOf(observed.job);  // not before the end is written: it waits for nothing
  std::vector<Pod> pods = observed.stale;
  pods.insert(pods.end(), observed.current.begin(), observed.current.end());
  plan.drops_master = !plan.delete_job && HadMaster(observed.job) && !AnyRuns(pods);
  const std::string& policy = observed.job.spec.clean_pod_policy;
  if (policy == "None") return plan;
  for (const Pod& pod : pods) {
    if (pod && !pod->deleting && (policy == "All" || !pod->over)) plan.deletes.push_back({pod->name, pod->uid});
  }
  ForceOverdue(observed, pods, plan, now);
  return plan;
}

}  // namespace trainyard::reconcile
