// Since when this process has known of what other clocks date.
#ifndef TRAINYARD_OPERATOR_RECONCILE_SIGHTINGS_H_
#define TRAINYARD_OPERATOR_RECONCILE_SIGHTINGS_H_

#include <cstdint>
#include <map>
#include <string>

#include "operator/base/clock.h"
#include "operator/base/mutex.h"
#include "operator/reconcile/plan.h"

namespace trainyard::reconcile {

// Another leader begins anew. Thread-safe.
class Sightings {
 public:
  explicit Sightings(const Clock& clock) : clock_(clock) {}

  // Of the deletions of pods: fills in Observed::unproven.
  void NoteDeletions(Observed& observed);
  // Of the first failed worker of an attempt: fills in Observed::failing_seconds.
  void NoteFailures(Observed& observed);
  // Of the first pod of an attempt that finds no node: fills in Observed::unschedulable_seconds.
  void NoteUnschedulable(Observed& observed);
  void Forget(const std::string& key);

 private:
  struct Since {
    std::string uid;  // the job's
    int64_t attempt = 0;
    Instant at{};
  };
  // By the job's key.
  using Firsts = std::map<std::string, Since>;
  // Seconds for which it `holds` of the job's attempt; 0 where it does not.
  double SecondsOf(Firsts& firsts, const TrainingJob& job, bool holds) REQUIRES_LOCK(mutex_);

  const Clock& clock_;
  Mutex mutex_;
  std::map<std::string, std::map<std::string, Instant>> deletions_ GUARDED_BY(mutex_);  // by key and uid of the pod
  Firsts failures_ GUARDED_BY(mutex_), unschedulable_ GUARDED_BY(mutex_);
};

}  // namespace trainyard::reconcile

#endif  // TRAINYARD_OPERATOR_RECONCILE_SIGHTINGS_H_
