#include "operator/reconcile/conditions.h"
#include "operator/reconcile/culprit.h"
#include "operator/reconcile/policies.h"

namespace trainyard::reconcile {
namespace {

// Another controller's job, or one that is going: owner references collect its pods.
bool HandsOff(const TrainingJob& job) {
  return job.deleting || (!job.spec.managed_by.empty() && job.spec.managed_by != "trainyard.dev/operator");
}

Plan LeaveAlone(const Observed& observed) {
  Plan plan;
  plan.status = observed.job.status;
  return plan;
}

}  // namespace

Plan MakePlan(const Observed& o, Time now) {
  if (HandsOff(o.job)) return LeaveAlone(o);
  if (IsFinished(o.job.status)) return KeepFinished(o, LeaveAlone(o));
  Plan plan = StatusFromPods(o, now);
  if (IsInvalid(o)) return ReportInvalid(o, std::move(plan), now);
  if (HasSucceeded(o)) return Succeed(o, std::move(plan), now);
  if (o.job.spec.suspend) return Suspend(o, std::move(plan), now);
  if (IsTrue(o.job.status, kSuspendedCondition)) return Resume(o, std::move(plan), now);
  if (o.job.status.attempt == 0) {
    NextAttempt(o, plan, now);
    plan.status.phase = api::kPending;
    return plan;
  }
  if (!o.stale.empty()) return DrainStale(o, std::move(plan));  // Never mix two attempts.
  if (const std::vector<FailedWorker> failed = FailedWorkers(o, now); !failed.empty())
    return RestartOrFail(o, failed, std::move(plan), now);
  return CreateMissing(o, std::move(plan), now);
}

}  // namespace trainyard::reconcile
