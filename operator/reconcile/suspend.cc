#include <algorithm>
#include <cmath>

#include "operator/reconcile/conditions.h"
#include "operator/reconcile/gang.h"
#include "operator/reconcile/policies.h"

namespace trainyard::reconcile {

namespace {

bool HasPods(const Observed& observed) {
  return std::any_of(observed.current.begin(), observed.current.end(), [](const Pod& pod) { return pod != nullptr; });
}

}  // namespace

bool IsAtRest(const Observed& observed) {
  const api::JobStatus& status = observed.job.status;
  return observed.job.spec.suspend && status.attempt > 0 && !IsTrue(status, kSuspendedCondition) &&
         !HasPods(observed) && observed.stale.empty() && observed.coming.empty();
}

Plan Suspend(const Observed& observed, Plan plan, Time now) {
  api::JobStatus& status = plan.status;
  if (HasPods(observed)) {
    // The next attempt begins here, so that these pods are stale and go, after a checkpoint.
    NextAttempt(observed, plan, now);
    status.phase = api::kSuspending;
    plan.events.push_back(
        {"Normal", "Suspending", "spec.suspend is true: the workers get time for a checkpoint and go"});
    return plan;
  }
  if (!observed.stale.empty()) {
    status.phase = api::kSuspending;
    return DrainStale(observed, std::move(plan), now);
  }
  if (!observed.coming.empty()) {  // they were made a moment ago
    status.phase = api::kSuspending;
    return plan;
  }
  plan.drops_groups = GangOf(observed.job) && status.attempt > 0;
  plan.drops_master = HadMaster(observed.job);  // a resumed job asks for another
  if (!IsTrue(status, kSuspendedCondition)) plan.events.push_back({"Normal", "Suspended", "no worker is left"});
  SetCondition(status, kSuspendedCondition, true, "Requested", "spec.suspend is true", now, observed.job.generation);
  ClearCondition(status, kRestartingCondition, "Suspended", "", now, observed.job.generation);
  ClearCondition(status, kRunningCondition, "Suspended", "", now, observed.job.generation);
  status.phase = api::kSuspended;
  ForgetSpeed(status.progress);
  return plan;
}

void ResumeEarly(Plan& plan) {
  plan.status.phase = api::kPending;
  plan.events.push_back(
      {"Normal", "Resumed",
       "attempt " + std::to_string(plan.status.attempt) + " begins once the workers of the one before have gone"});
}

Plan Resume(const Observed& observed, Plan plan, Time now) {
  api::JobStatus& status = plan.status;
  const api::Condition* suspended = FindCondition(status, kSuspendedCondition);
  if (status.start_time && suspended && suspended->last_transition_time)
    status.suspended_seconds +=
        std::max<int64_t>(0, std::llround(SecondsBetween(*suspended->last_transition_time, now)));
  ClearCondition(status, kSuspendedCondition, "Resumed", "spec.suspend is false", now, observed.job.generation);
  // The suspension has begun an attempt already, if there were pods to end; no pod was made for it. The spec may have
  // changed since.
  if (status.attempt == 0 || status.workers.created > 0 || !observed.made.empty()) {
    NextAttempt(observed, plan, now);
  } else {
    PrepareAttempt(observed, status, now);
  }
  status.phase = api::kPending;
  plan.events.push_back({"Normal", "Resumed", "attempt " + std::to_string(status.attempt) + " begins"});
  return plan;
}

}  // namespace trainyard::reconcile
