// Who may look at a job whose spec is not kept (JobRecord::apart): a pass holds the whole of it, as trees of values.
#ifndef TRAINYARD_OPERATOR_RECONCILE_LONG_TURNS_H_
#define TRAINYARD_OPERATOR_RECONCILE_LONG_TURNS_H_

#include <set>
#include <string>

#include "operator/base/mutex.h"

namespace trainyard::reconcile {

// A few at once, so that memory is bounded, and of each namespace one: jobs of one that never end to come, or whose
// webhook takes its time, leave turns for the others. Thread-safe.
class LongTurns {
 public:
  static constexpr size_t kAtOnce = 3;

  // One turn, from its making to its end, if it was to be had.
  class Turn {
   public:
    Turn(LongTurns& turns, const std::string& ns) : turns_(turns), ns_(ns) {
      const MutexLock lock(turns_.mutex_);
      mine_ = turns_.taken_.size() < kAtOnce && turns_.taken_.insert(ns).second;
    }
    ~Turn() {
      if (!mine_) return;
      const MutexLock lock(turns_.mutex_);
      turns_.taken_.erase(ns_);
    }
    Turn(const Turn&) = delete;
    Turn& operator=(const Turn&) = delete;
    bool mine() const { return mine_; }

   private:
    LongTurns& turns_;
    const std::string ns_;
    bool mine_ = false;
  };

 private:
  Mutex mutex_;
  std::set<std::string> taken_ GUARDED_BY(mutex_);  // namespaces
};

}  // namespace trainyard::reconcile

#endif  // TRAINYARD_OPERATOR_RECONCILE_LONG_TURNS_H_
