// The policies that MakePlan names, one per file. Each takes the plan so far and returns it with its
// decision; all are pure.
#ifndef TRAINYARD_OPERATOR_RECONCILE_POLICIES_H_
#define TRAINYARD_OPERATOR_RECONCILE_POLICIES_H_

#include "operator/reconcile/plan.h"

namespace trainyard::reconcile {

struct FailedWorker;  // culprit.h

// progress.cc: what the pods and rank 0's answer say, as status. Decides nothing.
Plan StatusFromPods(const Observed& observed, Time now);

// startup.cc: how long the attempt's start took, as far as pods and rank 0 say. What is known once stays.
void MeasureStartup(const Observed& observed, api::JobStatus& status);
// goodput.cc: where the time went since the status of `job` was written, into `after`, which is about to be.
void AccountTime(const TrainingJob& job, api::JobStatus& after, Time now);

// Another controller's job, or one that is going: owner references collect its pods.
bool HandsOff(const TrainingJob& job);

// invalid_spec.cc: says what is wrong with the spec, or that nothing is any more. While it is wrong, or not known to be
// right, nothing new is created; what runs goes on, and ends, as it would.
Plan JudgeSpec(const Observed& observed, Plan plan, Time now);
bool IsBlocked(const Observed& observed);
// Whether the template of this generation was refused: what refused it, a webhook for instance, may think otherwise
// since, so it is asked again every kAskRefusedSeconds.
bool WasRefused(const TrainingJob& job);
inline constexpr double kAskRefusedSeconds = 300;

// attempt.cc: advances `attempt` and clears what belongs to one; the phase is the caller's. Nothing is created for it
// before it was written and read back, and the pods of the old one go because they are now stale.
void NextAttempt(const Observed& observed, Plan& plan, Time now);
// How fast workers were that are gone, maybe for days, and how long they would have taken.
void ForgetSpeed(api::Progress& progress);
// The spec that the attempt is made from, which may change while the job is suspended and the attempt had no pod.
void PrepareAttempt(const Observed& observed, api::JobStatus& status, Time now);
Plan DrainStale(const Observed& observed, Plan plan, Time now);

// earlier.cc: true, and says so in the plan, where the attempt's first pod waits for the pods of a deleted job of this
// name. They have the same checkpoints, most likely, and nobody counts the new job's attempts against the old one's.
bool AwaitEarlier(const Observed& observed, Plan& plan, Time now);

// start.cc: creates the workers that are missing, says what is waited for.
Plan CreateMissing(const Observed& observed, Plan plan, Time now);
// Says how many workers of the attempt there have been. `made`: those whose pods were created, or found, just now and
// before: better evidence than a cache, which a pod may leave before anyone looks.
void CountCreated(const Observed& observed, const IndexSet& made, Plan& plan);

// Says in the Scheduled condition what the attempt's group of workers waits for, by its own word.
void NoteGroup(const Observed& observed, const std::string& news, Plan& plan, Time now);

// restart.cc: workers failed. Collects evidence, judges the culprit once, restarts or fails.
// REQUIRES: failed is not empty.
Plan RestartOrFail(const Observed& observed, const std::vector<FailedWorker>& failed, Plan plan, Time now);
// The same for an attempt that is ended while its workers live: `culprit` says why. Nothing is waited for.
Plan EndAttempt(const Observed& observed, FailedWorker culprit, Plan plan, Time now);
// Seconds between a restart and the creation of its pods: none after progress or a first disruption, else doubled for
// each restart in a row.
double RestartWait(const api::JobSpec& spec, const api::JobStatus& status);

// deadlines.cc
// Each adds to `plan` when it has to be looked at again.
// activeSeconds: why the job has had its time; nothing: it has not.
std::optional<std::string> UsedUp(const Observed& observed, Plan& plan, Time now);
// scheduleSeconds and startSeconds: the worker that keeps the attempt from starting; nothing: there is time.
std::optional<FailedWorker> LateWorker(const Observed& observed, Plan& plan, Time now);

// stall.cc: stallSeconds. Says in the conditions whether training goes on, as far as rank 0 tells; the culprit of an
// attempt that was called stalled in a pass before this one, and still is.
std::optional<FailedWorker> StalledWorker(const Observed& observed, Plan& plan, Time now);
// So long rank 0 may be silent before its progress counts as unknown, in seconds.
double SilenceSeconds(const Observed& observed);

// terminate.cc: terminateSeconds.
// Whether the pod is being deleted and nothing of it is left to wait for: it has ended, or was given no grace, and only
// a finalizer, for instance Kueue's, still holds the object. It is in nobody's way.
bool IsSpent(const PodRecord& pod);
// Whether the pod should be gone, its grace and the deadline behind it included, and still has not ended.
bool IsLost(const Observed& observed, const PodRecord& pod, Time now);
// Seconds for which a process watches the deletion of a pod before it may force it, whatever the clocks say: what the
// pod had for its end, and deadlines.terminateSeconds. Nothing for a pod that nobody waits for.
std::optional<double> DeletionSeconds(const Observed& observed, const PodRecord& pod);
// Deletes by force those of `pods` that are being deleted and overdue, and says what that may leave behind.
void ForceOverdue(const Observed& observed, const std::vector<Pod>& pods, Plan& plan, Time now);
// Looks again when a pod of the attempt that someone deletes would be lost.
void AwaitDeletions(const Observed& observed, Plan& plan, Time now);

// avoid_nodes.cc
// Those whose time is over, for the attempt that begins.
void ForgetOldNodes(api::JobStatus& status, Time now);
// Counts the culprit's node against it.
void NoteCulprit(const Observed& observed, const FailedWorker& culprit, Plan& plan, Time now);
// Whether a pod of the attempt was tried, and found no node.
bool HasUnschedulable(const Observed& observed);
// Whether that has been so for some time, and it may be because of those that are avoided.
bool FindsNoNode(const Observed& observed, Plan& plan);
// Another attempt, which may use all nodes. No restart: nothing failed.
Plan AllowAllNodes(const Observed& observed, Plan plan, Time now);

// suspend.cc
// Whether the job is to be suspended, is not yet, and no cache shows a pod that would have to go first.
bool IsAtRest(const Observed& observed);
Plan Suspend(const Observed& observed, Plan plan, Time now);
Plan Resume(const Observed& observed, Plan plan, Time now);
// Of a suspension that was taken back before the workers had gone: the attempt that it began goes on once they have.
void ResumeEarly(Plan& plan);

// finish.cc
// Whether there may be a <job>-master.
bool HadMaster(const TrainingJob& job);
bool IsFinished(const api::JobStatus& status);
bool HasSucceeded(const Observed& observed);
Plan Succeed(const Observed& observed, Plan plan, Time now);
Plan Fail(const Observed& observed, Plan plan, const std::string& reason, const std::string& message, Time now);
Plan KeepFinished(const Observed& observed, Plan plan, Time now);

// ttl.cc: ttlSecondsAfterFinished. REQUIRES: the job has ended.
void DeleteInTime(const TrainingJob& job, Plan& plan, Time now);

}  // namespace trainyard::reconcile

#endif  // TRAINYARD_OPERATOR_RECONCILE_POLICIES_H_
