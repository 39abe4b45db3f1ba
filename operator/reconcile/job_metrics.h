// What became of jobs, counted when it is written down, so that of several operators one counts it.
#ifndef TRAINYARD_OPERATOR_RECONCILE_JOB_METRICS_H_
#define TRAINYARD_OPERATOR_RECONCILE_JOB_METRICS_H_

#include <array>
#include <cstdint>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "operator/api/training_job.h"
#include "operator/base/histogram.h"
#include "operator/base/mutex.h"

namespace trainyard::reconcile {

// Thread-safe. No job's name is in it, and no word that a worker has made up: such a reason is "Other".
class JobMetrics {
 public:
  // `after` was written in place of `before`.
  void Count(const api::JobStatus& before, const api::JobStatus& after);

  // By the culprit's reason, and whether they were charged.
  std::map<std::pair<std::string, bool>, int64_t> restarts() const;
  // Jobs that failed for good, by the last culprit's reason, or by the Failed condition's where no worker failed.
  std::map<std::string, int64_t> failures() const;
  // How long the starts of attempts took, in seconds by stage.
  std::vector<std::pair<const char*, HistogramReading>> startup() const;
  // Where the jobs' time went, in seconds by cause.
  std::vector<std::pair<const char*, int64_t>> goodput() const;

 private:
  static constexpr std::array kStartupBounds = {0.5, 1.0, 2.0, 5.0, 10.0, 30.0, 60.0, 120.0, 300.0, 600.0, 1800.0};
  static constexpr size_t kStages = 5, kCauses = 6;

  std::array<Histogram<kStartupBounds>, kStages> startup_;
  mutable Mutex mutex_;
  std::map<std::pair<std::string, bool>, int64_t> restarts_ GUARDED_BY(mutex_);
  std::map<std::string, int64_t> failures_ GUARDED_BY(mutex_);
  std::array<int64_t, kCauses> goodput_ GUARDED_BY(mutex_){};
};

}  // namespace trainyard::reconcile

#endif  // TRAINYARD_OPERATOR_RECONCILE_JOB_METRICS_H_
