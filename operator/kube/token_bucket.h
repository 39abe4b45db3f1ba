// So many requests a second, and no more.
#ifndef TRAINYARD_OPERATOR_KUBE_TOKEN_BUCKET_H_
#define TRAINYARD_OPERATOR_KUBE_TOKEN_BUCKET_H_

#include <cstdint>

#include "operator/base/clock.h"
#include "operator/base/mutex.h"

namespace trainyard::kube {

// Thread-safe, and fair: whoever asks first goes first.
class TokenBucket {
 public:
  // Holds `burst` tokens at first and at most, and gets `per_second` of them. Both > 0.
  TokenBucket(double per_second, double burst, const Clock& clock)
      : per_second_(per_second), burst_(burst), clock_(clock), tokens_(burst), filled_(clock.Steady()) {}

  // Takes a token, which may not be there yet: the seconds to wait until it is.
  double Take();

  struct Counters {
    int64_t taken = 0, waited = 0;  // tokens, and those that were not there yet
    double seconds = 0;             // waited for them, all together
  };
  Counters counters() const;

 private:
  const double per_second_, burst_;
  const Clock& clock_;
  mutable Mutex mutex_;
  double tokens_ GUARDED_BY(mutex_);  // negative: taken in advance
  Instant filled_ GUARDED_BY(mutex_);
  Counters counters_ GUARDED_BY(mutex_);
};

}  // namespace trainyard::kube

#endif  // TRAINYARD_OPERATOR_KUBE_TOKEN_BUCKET_H_
