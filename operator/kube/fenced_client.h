// Lets nothing be written by an operator that does not lead.
//
// It stands closest to the server: a write that waited, for a token or after a 429, is judged when it is sent. What
// is in flight when the lease is lost is not called back; every write of ours is idempotent or carries what it
// expects (a uid, a resourceVersion).
#ifndef TRAINYARD_OPERATOR_KUBE_FENCED_CLIENT_H_
#define TRAINYARD_OPERATOR_KUBE_FENCED_CLIENT_H_

#include "operator/kube/client.h"

namespace trainyard::kube {

// Thread-safe. All references must outlive it.
class FencedClient : public Client {
 public:
  // `leads` is asked before each write; without it a write is kStopped. Reads pass.
  FencedClient(Client& inner, std::function<bool()> leads) : inner_(inner), leads_(std::move(leads)) {}

  Result<Json> Get(const Resource& resource, const std::string& ns, const std::string& name) override;
  Result<Json> List(const Resource& resource, const std::string& ns, const ListOptions& options) override;
  Result<Json> Create(const Resource& resource, const std::string& ns, const Json& object,
                      const WriteOptions& options) override;
  Result<Json> MergePatch(const Resource& resource, const std::string& ns, const std::string& name,
                          const std::string& subresource, const Json& patch, const WriteOptions& options) override;
  Status Delete(const Resource& resource, const std::string& ns, const std::string& name,
                const DeleteOptions& options) override;
  Status Watch(const Resource& resource, const std::string& ns, const WatchOptions& options,
               const std::function<bool(WatchEvent)>& on_event, const StopFlag& stop) override;

 private:
  Status MayWrite() const;

  Client& inner_;
  const std::function<bool()> leads_;
};

}  // namespace trainyard::kube

#endif  // TRAINYARD_OPERATOR_KUBE_FENCED_CLIENT_H_
