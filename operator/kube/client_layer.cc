#include "operator/kube/client_layer.h"

namespace trainyard::kube {
namespace {

Result<Json> NoObject(const Status& status) { return status.ok() ? Result<Json>(Json()) : Result<Json>(status); }

}  // namespace

Result<Json> ClientLayer::Get(const Resource& resource, const std::string& ns, const std::string& name,
                              const FieldPaths& fields) {
  return Around(Kind::kRead, [&] { return inner_.Get(resource, ns, name, fields); });
}

Result<ListEnd> ClientLayer::List(const Resource& resource, const std::string& ns, const ListOptions& options,
                                  const std::function<void(const Json&)>& on_item) {
  ListEnd end;
  const Result<Json> result = Around(Kind::kRead, [&] {
    Result<ListEnd> list = inner_.List(resource, ns, options, on_item);
    if (list.ok()) end = std::move(*list);
    return NoObject(list.status());
  });
  return result.ok() ? Result<ListEnd>(std::move(end)) : Result<ListEnd>(result.status());
}

Result<Json> ClientLayer::Create(const Resource& resource, const std::string& ns, const Json& object,
                                 const WriteOptions& options) {
  return Around(Kind::kWrite, [&] { return inner_.Create(resource, ns, object, options); });
}

Result<Json> ClientLayer::MergePatch(const Resource& resource, const std::string& ns, const std::string& name,
                                     const std::string& subresource, const Json& patch, const WriteOptions& options) {
  return Around(Kind::kWrite, [&] { return inner_.MergePatch(resource, ns, name, subresource, patch, options); });
}

Status ClientLayer::Delete(const Resource& resource, const std::string& ns, const std::string& name,
                           const DeleteOptions& options) {
  return Around(Kind::kWrite, [&] { return NoObject(inner_.Delete(resource, ns, name, options)); }).status();
}

Status ClientLayer::Watch(const Resource& resource, const std::string& ns, const WatchOptions& options,
                          const std::function<bool(WatchEvent)>& on_event, const StopFlag& stop) {
  return Around(Kind::kWatch, [&] { return NoObject(inner_.Watch(resource, ns, options, on_event, stop)); }).status();
}

}  // namespace trainyard::kube
