#include "operator/kube/token_bucket.h"

#include <algorithm>

namespace trainyard::kube {

double TokenBucket::Take() {
  const MutexLock lock(mutex_);
  const Instant now = clock_.Steady();
  tokens_ = std::min(burst_, tokens_ + SecondsBetween(filled_, now) * per_second_) - 1;
  filled_ = now;
  ++counters_.taken;
  if (tokens_ >= 0) return 0;
  const double wait = -tokens_ / per_second_;
  ++counters_.waited;
  counters_.seconds += wait;
  return wait;
}

TokenBucket::Counters TokenBucket::counters() const {
  const MutexLock lock(mutex_);
  return counters_;
}

}  // namespace trainyard::kube
