// kube::Client over HTTPS: paths, queries and bodies; how they travel is the transport's.
#ifndef TRAINYARD_OPERATOR_KUBE_REST_CLIENT_H_
#define TRAINYARD_OPERATOR_KUBE_REST_CLIENT_H_

#include "operator/kube/client.h"
#include "operator/kube/transport.h"

namespace trainyard::kube {

// Nothing is repeated but what the transport does; a 429 or a 5xx comes back with what the server asked for.
class RestClient : public Client {
 public:
  // Whatever is in flight ends with `stop`. All references must outlive it.
  RestClient(Endpoint endpoint, const Clock& clock, const StopFlag& stop, Transport::Options options = {})
      : transport_(std::move(endpoint), clock, stop, std::move(options)) {}

  Result<Json> Get(const Resource& resource, const std::string& ns, const std::string& name,
                   const kube::FieldPaths& fields = {}) override;
  Result<ListEnd> List(const Resource& resource, const std::string& ns, const ListOptions& options,
                       const std::function<void(const Json&)>& on_item) override;
  Result<Json> Create(const Resource& resource, const std::string& ns, const Json& object,
                      const WriteOptions& options) override;
  Result<Json> MergePatch(const Resource& resource, const std::string& ns, const std::string& name,
                          const std::string& subresource, const Json& patch, const WriteOptions& options) override;
  Status Delete(const Resource& resource, const std::string& ns, const std::string& name,
                const DeleteOptions& options) override;
  Status Watch(const Resource& resource, const std::string& ns, const WatchOptions& options,
               const std::function<bool(WatchEvent)>& on_event, const StopFlag& stop) override;

 private:
  // The answer of a request that succeeded, and its object.
  Result<Answer> Exchange(const std::string& method, const std::string& target, const std::string& content_type,
                          const std::string& body);
  Result<Json> Send(const std::string& method, const std::string& target, const std::string& content_type = "",
                    const std::string& body = "", const FieldPaths& fields = {});
  Transport transport_;
};

}  // namespace trainyard::kube

#endif  // TRAINYARD_OPERATOR_KUBE_REST_CLIENT_H_
