// Waits for a token before each request.
#ifndef TRAINYARD_OPERATOR_KUBE_LIMITED_CLIENT_H_
#define TRAINYARD_OPERATOR_KUBE_LIMITED_CLIENT_H_

#include "operator/kube/client.h"
#include "operator/kube/token_bucket.h"

namespace trainyard::kube {

// Thread-safe. All references must outlive it.
class LimitedClient : public Client {
 public:
  // A wait ends with `stop`, and then so does the call (kStopped).
  LimitedClient(Client& inner, TokenBucket& bucket, const StopFlag& stop)
      : inner_(inner), bucket_(bucket), stop_(stop) {}

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
  Status WaitForToken();

  Client& inner_;
  TokenBucket& bucket_;
  const StopFlag& stop_;
};

}  // namespace trainyard::kube

#endif  // TRAINYARD_OPERATOR_KUBE_LIMITED_CLIENT_H_
