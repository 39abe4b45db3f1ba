// What became of jobs, counted when it is written down, so that of several operators one counts it.
#ifndef TRAINYARD_OPERATOR_RECONCILE_JOB_METRICS_H_
#define TRAINYARD_OPERATOR_RECONCILE_JOB_METRICS_H_

#include <cstdint>
#include <map>
#include <string>
#include <utility>

#include "operator/api/training_job.h"
#include "operator/base/mutex.h"

namespace trainyard::reconcile {

// Thread-safe. No job's name is in it.
class JobMetrics {
 public:
  // A reason may be a stranger's word: behind so many the others are "Other".
  static constexpr size_t kMaxReasons = 100;

  // `after` was written in place of `before`.
  void Count(const api::JobStatus& before, const api::JobStatus& after);

  // By the culprit's reason, and whether they were charged.
  std::map<std::pair<std::string, bool>, int64_t> restarts() const;

 private:
  mutable Mutex mutex_;
  std::map<std::pair<std::string, bool>, int64_t> restarts_ GUARDED_BY(mutex_);
};

}  // namespace trainyard::reconcile

#endif  // TRAINYARD_OPERATOR_RECONCILE_JOB_METRICS_H_
