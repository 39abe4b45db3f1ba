// The policies that MakePlan names, one per file. Each takes the plan so far and returns it with its
// decision; all are pure.
#ifndef TRAINYARD_OPERATOR_RECONCILE_POLICIES_H_
#define TRAINYARD_OPERATOR_RECONCILE_POLICIES_H_

#include "operator/reconcile/plan.h"

namespace trainyard::reconcile {

struct FailedWorker;  // culprit.h

// progress.cc: what the pods and rank 0's answer say, as status. Decides nothing.
Plan StatusFromPods(const Observed& observed, Time now);

// Another controller's job, or one that is going: owner references collect its pods.
bool HandsOff(const TrainingJob& job);

// invalid_spec.cc: says what is wrong with the spec, or that nothing is any more. While it is wrong, or not known to be
// right, nothing new is created; what runs goes on, and ends, as it would.
Plan JudgeSpec(const Observed& observed, Plan plan, Time now);
bool IsBlocked(const Observed& observed);

// attempt.cc: advances `attempt` and clears what belongs to one; the phase is the caller's. Nothing is created for it
// before it was written and read back, and the pods of the old one go because they are now stale.
void NextAttempt(const Observed& observed, Plan& plan, Time now);
// The spec that the attempt is made from, which may change until its first pod exists.
void PrepareAttempt(const Observed& observed, api::JobStatus& status);
Plan DrainStale(const Observed& observed, Plan plan);

// start.cc: creates the workers that are missing, says what is waited for.
Plan CreateMissing(const Observed& observed, Plan plan, Time now);
// Says how many workers of the attempt there have been. `made`: those whose pods were created, or found, just now and
// before: better evidence than a cache, which a pod may leave before anyone looks.
void CountCreated(const Observed& observed, const IndexSet& made, Plan& plan);

// restart.cc: workers failed. Collects evidence, judges the culprit once, restarts or fails.
// REQUIRES: failed is not empty.
Plan RestartOrFail(const Observed& observed, const std::vector<FailedWorker>& failed, Plan plan, Time now);
// Seconds between a restart and the creation of its pods: none after progress or a first disruption, else doubled for
// each restart in a row.
double RestartWait(const api::JobSpec& spec, const api::JobStatus& status);

// suspend.cc
Plan Suspend(const Observed& observed, Plan plan, Time now);
Plan Resume(const Observed& observed, Plan plan, Time now);

// finish.cc
bool IsFinished(const api::JobStatus& status);
bool HasSucceeded(const Observed& observed);
Plan Succeed(const Observed& observed, Plan plan, Time now);
Plan Fail(const Observed& observed, Plan plan, const std::string& reason, const std::string& message, Time now);
Plan KeepFinished(const Observed& observed, Plan plan);

}  // namespace trainyard::reconcile

#endif  // TRAINYARD_OPERATOR_RECONCILE_POLICIES_H_
