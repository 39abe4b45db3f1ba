#include "operator/kube/fenced_client.h"

namespace trainyard::kube {

Status FencedClient::MayWrite() const {
  return leads_() ? Status::Ok() : Status(Code::kStopped, "this operator does not lead: nothing was written");
}

Result<Json> FencedClient::Get(const Resource& resource, const std::string& ns, const std::string& name) {
  return inner_.Get(resource, ns, name);
}

Result<Json> FencedClient::List(const Resource& resource, const std::string& ns, const ListOptions& options) {
  return inner_.List(resource, ns, options);
}

Result<Json> FencedClient::Create(const Resource& resource, const std::string& ns, const Json& object,
                                  const WriteOptions& options) {
  if (Status status = MayWrite(); !status.ok()) return status;
  return inner_.Create(resource, ns, object, options);
}

Result<Json> FencedClient::MergePatch(const Resource& resource, const std::string& ns, const std::string& name,
                                      const std::string& subresource, const Json& patch, const WriteOptions& options) {
  if (Status status = MayWrite(); !status.ok()) return status;
  return inner_.MergePatch(resource, ns, name, subresource, patch, options);
}

Status FencedClient::Delete(const Resource& resource, const std::string& ns, const std::string& name,
                            const DeleteOptions& options) {
  if (Status status = MayWrite(); !status.ok()) return status;
  return inner_.Delete(resource, ns, name, options);
}

Status FencedClient::Watch(const Resource& resource, const std::string& ns, const WatchOptions& options,
                           const std::function<bool(WatchEvent)>& on_event, const StopFlag& stop) {
  return inner_.Watch(resource, ns, options, on_event, stop);
}

}  // namespace trainyard::kube
