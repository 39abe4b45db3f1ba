#include "operator/reconcile/conditions.h"
#include "operator/reconcile/culprit.h"
#include "operator/reconcile/policies.h"

namespace trainyard::reconcile {
namespace {

Plan LeaveAlone(const Observed& observed) {
  Plan plan;
  plan.status = observed.job.status;
  return plan;
}

// So soon a pod that got its labels back is looked for in the cache.
constexpr double kRelabelledSeconds = 10;

Plan TakeBack(const Observed& observed) {
  Plan plan = LeaveAlone(observed);
  plan.relabels = observed.unlabelled;
  plan.RequeueIn(kRelabelledSeconds);  // one that has gone meanwhile wakes nobody
  return plan;
}

Plan FirstAttempt(const Observed& observed, Plan plan, Time now) {
  NextAttempt(observed, plan, now);
  plan.status.phase = api::kPending;
  return plan;
}

}  // namespace

bool HandsOff(const TrainingJob& job) {
  return job.deleting || (!job.spec.managed_by.empty() && job.spec.managed_by != "trainyard.dev/operator");
}

Plan MakePlan(const Observed& o, Time now) {
  if (HandsOff(o.job)) return LeaveAlone(o);
  if (IsFinished(o.job.status)) return KeepFinished(o, LeaveAlone(o), now);
  if (!o.unlabelled.empty()) return TakeBack(o);  // Nothing can be decided while a pod is out of sight.
  Plan plan = JudgeSpec(o, StatusFromPods(o, now), now);
  if (HasSucceeded(o)) return Succeed(o, std::move(plan), now);
  if (o.job.spec.suspend) return Suspend(o, std::move(plan), now);
  // A spec that is wrong holds up what is new, and nothing that runs.
  if (IsTrue(o.job.status, kSuspendedCondition)) return IsBlocked(o) ? plan : Resume(o, std::move(plan), now);
  if (o.job.status.attempt == 0) return IsBlocked(o) ? plan : FirstAttempt(o, std::move(plan), now);
  if (const auto why = UsedUp(o, plan, now)) return Fail(o, std::move(plan), "DeadlineExceeded", *why, now);
  if (plan.status.phase == api::kSuspending) ResumeEarly(plan);
  if (!o.stale.empty()) return DrainStale(o, std::move(plan), now);  // Never mix two attempts.
  if (const std::vector<FailedWorker> failed = FailedWorkers(o, now); !failed.empty())
    return RestartOrFail(o, failed, std::move(plan), now);
  AwaitDeletions(o, plan, now);
  if (FindsNoNode(o, plan)) return AllowAllNodes(o, std::move(plan), now);
  if (const auto late = LateWorker(o, plan, now)) return EndAttempt(o, *late, std::move(plan), now);
  if (const auto stalled = StalledWorker(o, plan, now)) return EndAttempt(o, *stalled, std::move(plan), now);
  return CreateMissing(o, std::move(plan), now);
}

}  // namespace trainyard::reconcile
