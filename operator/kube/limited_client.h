// Waits for a token before each request.
#ifndef TRAINYARD_OPERATOR_KUBE_LIMITED_CLIENT_H_
#define TRAINYARD_OPERATOR_KUBE_LIMITED_CLIENT_H_

#include "operator/kube/client_layer.h"
#include "operator/kube/token_bucket.h"

namespace trainyard::kube {

// Thread-safe. All references must outlive it.
class LimitedClient : public ClientLayer {
 public:
  // A wait ends with `stop`, and then so does the call (kStopped).
  LimitedClient(Client& inner, TokenBucket& bucket, const StopFlag& stop)
      : ClientLayer(inner), bucket_(bucket), stop_(stop) {}

 private:
  Result<Json> Around(Kind kind, const Call& call) override;

  TokenBucket& bucket_;
  const StopFlag& stop_;
};

}  // namespace trainyard::kube

#endif  // TRAINYARD_OPERATOR_KUBE_LIMITED_CLIENT_H_
