#include "operator/api/validation.h"
#include "operator/reconcile/conditions.h"
#include "operator/reconcile/policies.h"
#include "operator/reconcile/worker_pod.h"

namespace trainyard::reconcile {

void NextAttempt(const Observed& observed, Plan& plan, Time now) {
  api::JobStatus& status = plan.status;
  const TrainingJob& job = observed.job;
  ++status.attempt;
  status.spec_hash = SpecHash(job.spec);
  status.workers = {.desired = job.spec.workers};
  const int64_t size = job.spec.workers * api::ProcsPerWorker(job.spec);
  if (status.world.size != size) status.world = {.size = size, .generation = status.world.generation + 1};
  status.master = {.address = MasterAddress(job, status.attempt), .port = MasterPort(job.uid, status.attempt)};
  if (!status.start_time) status.start_time = now;
  ClearCondition(status, kInvalidSpecCondition, "Valid", "", now, job.generation);
  for (const char* type : {kScheduledCondition, kReadyCondition, kRunningCondition})
    ClearCondition(status, type, "NewAttempt", "", now, job.generation);
}

Plan DrainStale(const Observed& observed, Plan plan) {
  for (const Pod& pod : observed.stale) {
    // One that is being deleted has its grace; the deadline after that belongs to a later version.
    if (!pod->deleting) plan.deletes.push_back({pod->name, pod->uid});
  }
  return plan;
}

}  // namespace trainyard::reconcile
