#include "operator/reconcile/job_metrics.h"

namespace trainyard::reconcile {

void JobMetrics::Count(const api::JobStatus& before, const api::JobStatus& after) {
  if (after.restarts.total <= before.restarts.total) return;
  const bool charged = after.restarts.charged > before.restarts.charged;
  const MutexLock lock(mutex_);
  std::pair key{after.last_failure ? after.last_failure->reason : "", charged};
  if (restarts_.size() >= kMaxReasons && !restarts_.contains(key)) key.first = "Other";
  ++restarts_[key];
}

std::map<std::pair<std::string, bool>, int64_t> JobMetrics::restarts() const {
  const MutexLock lock(mutex_);
  return restarts_;
}

}  // namespace trainyard::reconcile
