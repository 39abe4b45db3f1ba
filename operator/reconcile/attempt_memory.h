// What was seen for a job in its newest attempt, by job: what was seen in another, or of another job of the name, is
// nothing.
#ifndef TRAINYARD_OPERATOR_RECONCILE_ATTEMPT_MEMORY_H_
#define TRAINYARD_OPERATOR_RECONCILE_ATTEMPT_MEMORY_H_

#include <functional>
#include <map>
#include <string>
#include <utility>

#include "operator/api/training_job.h"
#include "operator/base/mutex.h"
#include "operator/base/status.h"

namespace trainyard::reconcile {

// Asks the API itself whether an attempt is the newest: kConflict when it is not.
using ConfirmFunction = std::function<Status()>;

// Seen has `uid` of the job, and `attempt`. Thread-safe.
template <class Seen>
class AttemptMemory {
 public:
  // One with nothing but uid and attempt when nothing is known.
  Seen Recall(const api::TrainingJob& job, int64_t attempt) const {
    {
      const MutexLock lock(mutex_);
      const auto found = seen_.find(job.Key());
      if (found != seen_.end() && found->second.uid == job.uid && found->second.attempt == attempt)
        return found->second;
    }
    Seen nothing;
    nothing.uid = job.uid;
    nothing.attempt = attempt;
    return nothing;
  }
  // In the place of what is known of the job.
  void Keep(const std::string& key, Seen seen) {
    const MutexLock lock(mutex_);
    seen_[key] = std::move(seen);
  }
  void Forget(const std::string& key) {
    const MutexLock lock(mutex_);
    seen_.erase(key);
  }

 private:
  mutable Mutex mutex_;
  std::map<std::string, Seen> seen_ GUARDED_BY(mutex_);  // by job key
};

}  // namespace trainyard::reconcile

#endif  // TRAINYARD_OPERATOR_RECONCILE_ATTEMPT_MEMORY_H_
