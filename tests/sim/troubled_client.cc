#include "tests/sim/troubled_client.h"

#include "operator/base/json_access.h"

namespace trainyard::sim {
namespace {

uint64_t Version(const std::string& text) { return std::strtoull(text.c_str(), nullptr, 10); }

uint64_t VersionOf(const Json& object) {
  return Version(json::Text(json::Field(object, "metadata"), "resourceVersion"));
}

}  // namespace

Status TroubledClient::Before() {
  clock_.Advance(dice_.Between(0, 0.02));
  if (dice_.Chance(trouble_.interleave)) pause_();
  if (dice_.Chance(trouble_.level * 0.05)) throw Crash{};
  if (dice_.Chance(trouble_.level * 0.08)) return Status(Code::kThrottled, "storage is (re)initializing");
  if (dice_.Chance(trouble_.level * 0.08)) return Status(Code::kUnavailable, "connection refused");
  return Status::Ok();
}

bool TroubledClient::LosesAnswer() {
  ++writes_;
  if (dice_.Chance(trouble_.level * 0.05)) throw Crash{};
  return dice_.Chance(trouble_.level * 0.08);
}

bool TroubledClient::QuotaIsFull() const {
  return trouble_.max_pods && static_cast<int64_t>(mirror_.pods().size()) >= *trouble_.max_pods;
}

uint64_t TroubledClient::seen(const kube::Resource& resource) const {
  const auto found = seen_.find(resource.plural);
  return found == seen_.end() ? 0 : found->second;
}

Result<Json> TroubledClient::Get(const kube::Resource& resource, const std::string& ns, const std::string& name,
                                 const kube::FieldPaths& fields) {
  on_request("get", resource, name, nullptr);
  if (Status status = Before(); !status.ok()) return status;
  return MemoryClient::Get(resource, ns, name, fields);
}

Result<kube::ListEnd> TroubledClient::List(const kube::Resource& resource, const std::string& ns,
                                           const kube::ListOptions& options,
                                           const std::function<void(const Json&)>& on_item) {
  if (Status status = Before(); !status.ok()) return status;
  // A list from a server's cache is some list of the past, but never older than what was asked for. One of a single
  // object asks how far the server has come, and fills no cache of ours.
  const bool cached = !options.resource_version.empty() && options.limit != 1;
  if (cached && dice_.Chance(trouble_.level)) {
    const std::optional<Json> old =
        mirror_.OldList(resource, options.label_selector, Version(options.resource_version), dice_);
    if (old) {
      for (const Json& item : (*old)["items"]) on_item(item);
      seen_[resource.plural] = VersionOf(*old);
      return kube::ListEnd{(*old)["metadata"]["resourceVersion"], ""};
    }
  }
  const Result<kube::ListEnd> list = MemoryClient::List(resource, ns, options, on_item);
  if (list.ok() && cached) seen_[resource.plural] = Version(list->resource_version);
  return list;
}

Result<Json> TroubledClient::Create(const kube::Resource& resource, const std::string& ns, const Json& object,
                                    const kube::WriteOptions& options) {
  if (!options.dry_run) on_request("create", resource, object["metadata"]["name"], &object);
  if (Status status = Before(); !status.ok()) return status;
  if (resource == kube::kPods && !options.dry_run && QuotaIsFull()) return Status(Code::kForbidden, "exceeded quota");
  at_server(true);
  Result<Json> created = MemoryClient::Create(resource, ns, object, options);
  at_server(false);
  if (LosesAnswer()) {
    if (resource == kube::kPods) on_lost_creation();
    return Status(Code::kUnavailable, "the connection broke");
  }
  return created;
}

Result<Json> TroubledClient::MergePatch(const kube::Resource& resource, const std::string& ns, const std::string& name,
                                        const std::string& subresource, const Json& patch,
                                        const kube::WriteOptions& options) {
  on_request("patch", resource, name, &patch);
  if (Status status = Before(); !status.ok()) return status;
  at_server(true);
  Result<Json> patched = MemoryClient::MergePatch(resource, ns, name, subresource, patch, options);
  at_server(false);
  if (LosesAnswer()) return Status(Code::kUnavailable, "the connection broke");
  return patched;
}

Status TroubledClient::Delete(const kube::Resource& resource, const std::string& ns, const std::string& name,
                              const kube::DeleteOptions& options) {
  on_request("delete", resource, name, nullptr);
  if (Status status = Before(); !status.ok()) return status;
  at_server(true);
  Status deleted = MemoryClient::Delete(resource, ns, name, options);
  at_server(false);
  if (LosesAnswer()) return Status(Code::kUnavailable, "the connection broke");
  return deleted;
}

// Delivers some of what there is and ends: the rest comes with a later watch, as on a slow network.
Status TroubledClient::Watch(const kube::Resource& resource, const std::string& ns, const kube::WatchOptions& options,
                             const std::function<bool(kube::WatchEvent)>& on_event, const kube::StopFlag& stop) {
  if (Status status = Before(); !status.ok()) return status;
  if (dice_.Chance(trouble_.level * 0.03)) {
    api_.Compact();
    on_event({"ERROR", local::Failure(410, "Expired", "too old").body});
    return Status::Ok();
  }
  if (dice_.Chance(trouble_.level * 0.02)) {
    on_event({"ERROR", local::Failure(dice_.Chance(0.5) ? 500 : 429, "InternalError", "etcd leader changed").body});
    return Status::Ok();
  }
  kube::WatchOptions now = options;
  now.timeout_seconds = 0;
  // A cache may be replayed: events that were delivered come again.
  const uint64_t from = Version(options.resource_version);
  if (!options.initial_events && from > 4 && dice_.Chance(trouble_.level * 0.05))
    now.resource_version = std::to_string(from - static_cast<uint64_t>(dice_.Below(4)));
  int64_t left = dice_.Chance(trouble_.level) ? dice_.Below(4) : 1000000;
  // What there is counts once all of it has come, as a list does.
  bool initial = options.initial_events;
  const uint64_t before = seen(resource);
  Status status = MemoryClient::Watch(
      resource, ns, now,
      [&](kube::WatchEvent event) {
        if (left-- <= 0) return false;
        initial = initial && event.type != "BOOKMARK";
        if (!initial) seen_[resource.plural] = VersionOf(event.object);
        return on_event(std::move(event));
      },
      stop);
  if (initial) seen_[resource.plural] = before;
  return status;
}

}  // namespace trainyard::sim
