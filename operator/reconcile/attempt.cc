#include "operator/api/validation.h"
#include "operator/reconcile/conditions.h"
#include "operator/reconcile/policies.h"
#include "operator/reconcile/worker_pod.h"

namespace trainyard::reconcile {
namespace {

// An older operator has not told where they lie. While the job is suspended they are what its pods leave behind.
void ForgetCheckpointsElsewhere(const TrainingJob& job, api::JobStatus& status) {
  if (job.spec.suspend) return;
  const std::string hash = CheckpointHash(job);
  if (!status.checkpoint_hash.empty() && status.checkpoint_hash != hash) {
    status.progress = {};
    status.checkpoint = {};
    status.restarts.durable_step.reset();
    status.goodput.furthest_step.reset();
  }
  status.checkpoint_hash = hash;
}

}  // namespace

void NextAttempt(const Observed& observed, Plan& plan, Time now) {
  api::JobStatus& status = plan.status;
  const TrainingJob& job = observed.job;
  ++status.attempt;
  PrepareAttempt(observed, status, now);
  if (!status.start_time) status.start_time = now;
  // What rank 0 of the next attempt says is no continuation.
  status.progress.last_progress.reset();
  status.progress.last_progress_seen.reset();
  ForgetSpeed(status.progress);
  for (const char* type :
       {kScheduledCondition, kWorkersReadyCondition, kRunningCondition, kStalledCondition, kProgressUnknownCondition})
    ClearCondition(status, type, "NewAttempt", "", now, job.generation);
}

void ForgetSpeed(api::Progress& progress) {
  progress.samples_per_second.reset();
  progress.eta_seconds.reset();
}

void PrepareAttempt(const Observed& observed, api::JobStatus& status, Time now) {
  const TrainingJob& job = observed.job;
  ForgetOldNodes(status, now);
  status.attempt_time = now;
  status.startup = {};
  status.goodput.step.reset();
  status.spec_hash = SpecHash(job);
  ForgetCheckpointsElsewhere(job, status);
  status.workers = {};
  status.workers.desired = job.spec.workers;
  status.world = {.size = job.spec.workers * api::ProcsPerWorker(job.spec)};
  // The address is known once its service is there.
  status.master = {.address = "", .port = MasterPort(job.uid, status.attempt)};
}

Plan DrainStale(const Observed& observed, Plan plan, Time now) {
  for (const Pod& pod : observed.stale) {
    if (!pod->deleting) plan.deletes.push_back({pod->name, pod->uid});
  }
  ForceOverdue(observed, observed.stale, plan, now);
  return plan;
}

}  // namespace trainyard::reconcile
