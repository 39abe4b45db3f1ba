#include "operator/kube/limited_client.h"

namespace trainyard::kube {

Status LimitedClient::WaitForToken() {
  const double wait = bucket_.Take();
  if (wait > 0 && !stop_.Sleep(wait)) return Status(Code::kStopped, "the operator stops");
  return Status::Ok();
}

Result<Json> LimitedClient::Get(const Resource& resource, const std::string& ns, const std::string& name) {
  if (Status status = WaitForToken(); !status.ok()) return status;
  return inner_.Get(resource, ns, name);
}

Result<Json> LimitedClient::List(const Resource& resource, const std::string& ns, const ListOptions& options) {
  if (Status status = WaitForToken(); !status.ok()) return status;
  return inner_.List(resource, ns, options);
}

Result<Json> LimitedClient::Create(const Resource& resource, const std::string& ns, const Json& object,
                                   const WriteOptions& options) {
  if (Status status = WaitForToken(); !status.ok()) return status;
  return inner_.Create(resource, ns, object, options);
}

Result<Json> LimitedClient::MergePatch(const Resource& resource, const std::string& ns, const std::string& name,
                                       const std::string& subresource, const Json& patch, const WriteOptions& options) {
  if (Status status = WaitForToken(); !status.ok()) return status;
  return inner_.MergePatch(resource, ns, name, subresource, patch, options);
}

Status LimitedClient::Delete(const Resource& resource, const std::string& ns, const std::string& name,
                             const DeleteOptions& options) {
  if (Status status = WaitForToken(); !status.ok()) return status;
  return inner_.Delete(resource, ns, name, options);
}

Status LimitedClient::Watch(const Resource& resource, const std::string& ns, const WatchOptions& options,
                            const std::function<bool(WatchEvent)>& on_event, const StopFlag& stop) {
  if (Status status = WaitForToken(); !status.ok()) return status;
  return inner_.Watch(resource, ns, options, on_event, stop);
}

}  // namespace trainyard::kube
