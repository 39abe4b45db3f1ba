#include "operator/local/api/memory_client.h"

#include <algorithm>
#include <chrono>

#include "operator/base/json_access.h"
#include "operator/kube/parse_object.h"

namespace trainyard::local {
namespace {

Result<Json> ToResult(ApiResult result) {
  if (result.ok()) return std::move(result.body);
  return kube::StatusFromApi(result.http, result.body);
}

// As the client over HTTPS: who reads what it has not named shall not find it only here.
Result<Json> Only(Result<Json> object, const kube::FieldPaths& fields) {
  if (object.ok() && !fields.empty()) *object = kube::ObjectParser(0, fields).Parse(object->dump());
  return object;
}

}  // namespace

Result<Json> MemoryClient::Get(const Resource& resource, const std::string& ns, const std::string& name,
                               const kube::FieldPaths& fields) {
  return Only(ToResult(api_.Get(resource, ns, name)), fields);
}

Result<kube::ListEnd> MemoryClient::List(const Resource& resource, const std::string& ns,
                                         const kube::ListOptions& options,
                                         const std::function<void(const Json&)>& on_item) {
  const ApiResult list = api_.List(resource, ns, options);
  if (!list.ok()) return kube::StatusFromApi(list.http, list.body);
  // As a server may: who asks for the metadata alone shall not miss the rest only there.
  for (const Json& item : list.body["items"])
    on_item(options.metadata_only ? Json{{"metadata", item["metadata"]}} : item);
  const Json& metadata = list.body["metadata"];
  return kube::ListEnd{json::Text(metadata, "resourceVersion"), json::Text(metadata, "continue")};
}

Result<Json> MemoryClient::Create(const Resource& resource, const std::string& ns, const Json& object,
                                  const kube::WriteOptions& options) {
  return ToResult(api_.Create(
      resource, ns, object,
      {.dry_run = options.dry_run, .strict = options.strict, .manager = kube::kFieldManager, .force = false}));
}

Result<Json> MemoryClient::MergePatch(const Resource& resource, const std::string& ns, const std::string& name,
                                      const std::string& subresource, const Json& patch,
                                      const kube::WriteOptions& options) {
  const WriteRequest how = {
      .dry_run = options.dry_run, .strict = options.strict, .manager = kube::kFieldManager, .force = false};
  return Only(ToResult(api_.Patch(resource, ns, name, subresource, PatchType::kMerge, patch, how)), options.fields);
}

Status MemoryClient::Delete(const Resource& resource, const std::string& ns, const std::string& name,
                            const kube::DeleteOptions& options) {
  return ToResult(api_.Delete(resource, ns, name,
                              {.dry_run = false,
                               .uid = options.uid,
                               .resource_version = options.resource_version,
                               .grace_seconds = options.grace_seconds,
                               .propagation = ""}))
      .status();
}

Status MemoryClient::Watch(const Resource& resource, const std::string& ns, const kube::WatchOptions& options,
                           const std::function<bool(kube::WatchEvent)>& on_event, const kube::StopFlag& stop) {
  const Result<Selector> selector = Selector::Parse(resource, options.label_selector, "");
  if (!selector.ok()) return selector.status();
  if (options.accepted) options.accepted();
  std::string from = options.resource_version;
  if (options.initial_events) {
    bool more = true;
    const auto on_item = [&](const Json& item) { more = more && on_event({"ADDED", item}); };
    const Result<kube::ListEnd> list =
        List(resource, ns, {.label_selector = options.label_selector, .resource_version = options.resource_version},
             on_item);
    if (!list.ok()) return list.status();
    from = list->resource_version;
    const Json annotations = {{kube::kInitialEventsEnd, "true"}};
    if (!more || !on_event({"BOOKMARK", {{"metadata", {{"resourceVersion", from}, {"annotations", annotations}}}}}))
      return Status::Ok();
  }
  uint64_t since = std::strtoull(from.c_str(), nullptr, 10);
  const auto start = std::chrono::steady_clock::now(), deadline = start + std::chrono::seconds(options.timeout_seconds);
  for (bool asked = !options.silent || options.initial_events; !stop;) {
    const auto now = std::chrono::steady_clock::now();
    const double left = Seconds(deadline - now).count();
    if (!asked && Seconds(now - start).count() >= options.silent_seconds) {
      asked = true;
      if (Status status = options.silent(); !status.ok()) return status;
    }
    std::vector<kube::WatchEvent> events;
    if (!api_.Next(resource, ns, *selector, since, std::clamp(left, 0.0, 0.5), events))
      return Status(Code::kGone, "too old resource version");
    asked = asked || !events.empty();
    for (kube::WatchEvent& event : events) {
      if (!on_event(std::move(event))) return Status::Ok();
    }
    if (left <= 0) break;
  }
  return Status::Ok();
}

}  // namespace trainyard::local
