#include "operator/reconcile/policies.h"

namespace trainyard::reconcile {

void DeleteInTime(const TrainingJob& job, Plan& plan, Time now) {
  const std::optional<int64_t>& ttl = job.spec.ttl_seconds_after_finished;
  if (!ttl || !job.status.completion_time) return;
  plan.delete_job = plan.IsDue(After(*job.status.completion_time, static_cast<double>(*ttl)), now);
}

}  // namespace trainyard::reconcile
