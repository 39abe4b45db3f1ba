// A client in front of another: what it does with a call stands in one place, whichever call it is.
#ifndef TRAINYARD_OPERATOR_KUBE_CLIENT_LAYER_H_
#define TRAINYARD_OPERATOR_KUBE_CLIENT_LAYER_H_

#include <functional>
#include <string>

#include "operator/kube/client.h"

namespace trainyard::kube {

// Thread-safe where Around is. `inner` must outlive it.
class ClientLayer : public Client {
 public:
  explicit ClientLayer(Client& inner) : inner_(inner) {}

  Result<Json> Get(const Resource& resource, const std::string& ns, const std::string& name,
                   const FieldPaths& fields = {}) final;
  Result<ListEnd> List(const Resource& resource, const std::string& ns, const ListOptions& options,
                       const std::function<void(const Json&)>& on_item) final;
  Result<Json> Create(const Resource& resource, const std::string& ns, const Json& object,
                      const WriteOptions& options) final;
  Result<Json> MergePatch(const Resource& resource, const std::string& ns, const std::string& name,
                          const std::string& subresource, const Json& patch, const WriteOptions& options) final;
  Status Delete(const Resource& resource, const std::string& ns, const std::string& name,
                const DeleteOptions& options) final;
  Status Watch(const Resource& resource, const std::string& ns, const WatchOptions& options,
               const std::function<bool(WatchEvent)>& on_event, const StopFlag& stop) final;

 protected:
  enum class Kind { kRead, kWrite, kWatch };
  // `call` is the inner client's: nothing for a delete, a list or a watch that went well. May be made any number of
  // times, a list or a watch only while the answer is one that a server gives instead of it (429, 5xx).
  using Call = std::function<Result<Json>()>;

 private:
  // Makes the call, or says why not.
  virtual Result<Json> Around(Kind kind, const Call& call) = 0;

  Client& inner_;
};

}  // namespace trainyard::kube

#endif  // TRAINYARD_OPERATOR_KUBE_CLIENT_LAYER_H_
