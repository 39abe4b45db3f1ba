// Repeats what a server asked to come again.
//
//   - A 429, for every verb, and a 5xx that carries Retry-After: the server has done nothing. Up to ten times, after
//     what it asked for (1 s when it did not say, at most 30 s), and up to a quarter more; not beyond a minute in all,
//     for there are as many workers as there are.
//   - Not what a webhook asked for, which is one namespace's: a worker that looks after everyone's jobs would wait.
//   - The wait ends with the stop, and then so does the call (kStopped).
//   - Nothing else is repeated: what a call without an answer has done is for the caller to find out. A watch
//     is its reflector's.
#ifndef TRAINYARD_OPERATOR_KUBE_RETRYING_CLIENT_H_
#define TRAINYARD_OPERATOR_KUBE_RETRYING_CLIENT_H_

#include <atomic>
#include <cstdint>
#include <random>

#include "operator/base/mutex.h"
#include "operator/kube/client_layer.h"

namespace trainyard::kube {

// Thread-safe. All references must outlive it.
class RetryingClient : public ClientLayer {
 public:
  RetryingClient(Client& inner, const StopFlag& stop, uint64_t seed) : ClientLayer(inner), stop_(stop), random_(seed) {}

 private:
  // The seconds to wait before the call is made again; nothing when its status is the answer.
  std::optional<double> WaitAfter(const Status& status, int repeated);
  Result<Json> Around(Kind kind, const Call& call) override;

  const StopFlag& stop_;
  Mutex mutex_;
  std::mt19937_64 random_ GUARDED_BY(mutex_);
};

}  // namespace trainyard::kube

#endif  // TRAINYARD_OPERATOR_KUBE_RETRYING_CLIENT_H_
