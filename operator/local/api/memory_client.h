// kube::Client straight into a MemoryApi: for tests and the simulation, where no socket shall be.
#ifndef TRAINYARD_OPERATOR_LOCAL_API_MEMORY_CLIENT_H_
#define TRAINYARD_OPERATOR_LOCAL_API_MEMORY_CLIENT_H_

#include "operator/kube/client.h"
#include "operator/local/api/memory_api.h"

namespace trainyard::local {

// `api` must outlive it. Thread-safe.
class MemoryClient : public kube::Client {
 public:
  explicit MemoryClient(MemoryApi& api) : api_(api) {}

  Result<Json> Get(const Resource& resource, const std::string& ns, const std::string& name,
                   const kube::FieldPaths& fields = {}) override;
  Result<kube::ListEnd> List(const Resource& resource, const std::string& ns, const kube::ListOptions& options,
                             const std::function<void(const Json&)>& on_item) override;
  Result<Json> Create(const Resource& resource, const std::string& ns, const Json& object,
                      const kube::WriteOptions& options) override;
  Result<Json> MergePatch(const Resource& resource, const std::string& ns, const std::string& name,
                          const std::string& subresource, const Json& patch,
                          const kube::WriteOptions& options) override;
  Status Delete(const Resource& resource, const std::string& ns, const std::string& name,
                const kube::DeleteOptions& options) override;
  // timeout_seconds 0 delivers what there is and returns.
  Status Watch(const Resource& resource, const std::string& ns, const kube::WatchOptions& options,
               const std::function<bool(kube::WatchEvent)>& on_event, const kube::StopFlag& stop) override;

 private:
  MemoryApi& api_;
};

}  // namespace trainyard::local

#endif  // TRAINYARD_OPERATOR_LOCAL_API_MEMORY_CLIENT_H_
