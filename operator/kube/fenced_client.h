// Lets nothing be written by an operator that does not lead.
//
// It stands closest to the server: a write that waited, for a token or after a 429, is judged when it is sent. What
// is in flight when the lease is lost is not called back; every write of ours is idempotent or carries what it
// expects (a uid, a resourceVersion).
#ifndef TRAINYARD_OPERATOR_KUBE_FENCED_CLIENT_H_
#define TRAINYARD_OPERATOR_KUBE_FENCED_CLIENT_H_

#include "operator/kube/client_layer.h"

namespace trainyard::kube {

// Thread-safe. All references must outlive it.
class FencedClient : public ClientLayer {
 public:
  // `leads` is asked before each write; without it a write is kStopped. Reads pass.
  FencedClient(Client& inner, std::function<bool()> leads) : ClientLayer(inner), leads_(std::move(leads)) {}

 private:
  Result<Json> Around(Kind kind, const Call& call) override;

  const std::function<bool()> leads_;
};

}  // namespace trainyard::kube

#endif  // TRAINYARD_OPERATOR_KUBE_FENCED_CLIENT_H_
