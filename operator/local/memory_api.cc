#include "operator/local/memory_api.h"

#include <algorithm>
#include <cstdio>
#include <set>

#include "operator/base/json_access.h"
#include "operator/local/admission.h"
#include "operator/local/apply.h"

namespace trainyard::local {
namespace {

constexpr size_t kHistory = 20000;

std::string Collection(const Resource& resource) { return resource.plural + "." + resource.group; }
std::string Key(const std::string& ns, const std::string& name) { return ns + "/" + name; }

std::string TextAt(const Json& object, const char* pointer) {
  const Json::json_pointer at(pointer);
  return object.contains(at) && object[at].is_string() ? object[at].get<std::string>() : "";
}

}  // namespace

bool HasEnded(const Json& pod) {
  const std::string phase = json::Text(json::Field(pod, "status"), "phase");
  return phase == "Succeeded" || phase == "Failed";
}

MemoryApi::MemoryApi(const Clock& clock, uint64_t seed) : clock_(clock), random_(seed) {}

const std::vector<Resource>& MemoryApi::Resources() {
  static const std::vector<Resource> resources = {kube::kPods, kube::kServices, kube::kEvents, kube::kLeases,
                                                  kube::kTrainingJobs};
  return resources;
}

const Resource* MemoryApi::FindResource(const std::string& group, const std::string& version,
                                        const std::string& plural) {
  for (const Resource& resource : Resources()) {
    if (resource.group == group && resource.version == version && resource.plural == plural) return &resource;
  }
  return nullptr;
}

std::string MemoryApi::NewUid() {
  char text[37];
  const uint64_t a = random_(), b = random_();
  std::snprintf(text, sizeof text, "%08x-%04x-4%03x-%04x-%012llx", static_cast<unsigned>(a >> 32),
                static_cast<unsigned>(a >> 16 & 0xffff), static_cast<unsigned>(a & 0xfff),
                static_cast<unsigned>(0x8000 | (b >> 48 & 0x3fff)),
                static_cast<unsigned long long>(b & 0xffffffffffff));
  return text;
}

ApiResult MemoryApi::Get(const Resource& resource, const std::string& ns, const std::string& name) const {
  const MutexLock lock(mutex_);
  const auto collection = collections_.find(Collection(resource));
  if (collection == collections_.end()) return NotFound(resource, name);
  const auto found = collection->second.find(Key(ns, name));
  if (found == collection->second.end()) return NotFound(resource, name);
  return {200, *found->second, {}};
}

ApiResult MemoryApi::List(const Resource& resource, const std::string& ns, const kube::ListOptions& options) const {
  const Result<Selector> selector = Selector::Parse(options.label_selector, options.field_selector);
  if (!selector.ok()) return BadRequest(selector.status().message());
  const MutexLock lock(mutex_);
  // A page goes on after the key in its token, in the same snapshot or not at all.
  std::string after;
  if (!options.continue_token.empty()) {
    const size_t colon = options.continue_token.find(':');
    if (colon == std::string::npos || options.continue_token.substr(0, colon) != std::to_string(version_)) {
      return Failure(410, "Expired", "The provided continue parameter is too old to display a consistent list result.");
    }
    after = options.continue_token.substr(colon + 1);
  }
  Json items = Json::array();
  Json metadata = {{"resourceVersion", std::to_string(version_)}};
  if (const auto collection = collections_.find(Collection(resource)); collection != collections_.end()) {
    for (auto entry = after.empty() ? collection->second.begin() : collection->second.upper_bound(after);
         entry != collection->second.end(); ++entry) {
      if (!ns.empty() && !entry->first.starts_with(ns + "/")) continue;
      if (!selector->Matches(*entry->second)) continue;
      if (options.limit > 0 && items.size() == static_cast<size_t>(options.limit)) {
        metadata["continue"] = std::to_string(version_) + ":" + after;
        break;
      }
      items.push_back(*entry->second);
      after = entry->first;
    }
  }
  return {200,
          {{"apiVersion", resource.ApiVersion()},
           {"kind", resource.kind + "List"},
           {"metadata", metadata},
           {"items", items}},
          {}};
}

ApiResult MemoryApi::Create(const Resource& resource, const std::string& ns, Json object, const WriteRequest& request) {
  if (ApiResult refused = PrepareCreate(resource, ns, object); !refused.ok()) return refused;
  const MutexLock lock(mutex_);
  const std::string prefix = TextAt(object, "/metadata/generateName");
  if (TextAt(object, "/metadata/name").empty() && !prefix.empty())
    object["metadata"]["name"] = prefix + NewUid().substr(0, 5);
  const std::string name = TextAt(object, "/metadata/name");
  if (ApiResult refused = CheckName(resource, name); !refused.ok()) return refused;
  ApiResult result = Admit(resource, nullptr, request.strict, object);
  if (!result.ok()) return result;
  const auto& collection = collections_[Collection(resource)];
  if (const auto found = collection.find(Key(ns, name)); found != collection.end())
    return AlreadyExists(resource, name, !TextAt(*found->second, "/metadata/deletionTimestamp").empty());
  Json& metadata = object["metadata"];
  metadata["uid"] = NewUid();
  metadata["creationTimestamp"] = FormatTime(clock_.Now());
  if (resource == kube::kTrainingJobs) metadata["generation"] = 1;
  result.http = 201;
  result.body = request.dry_run ? object : *Store(resource, nullptr, object);
  return result;
}

// Reads, changes and writes one object under the lock; `change` makes `next` of a copy of the old.
ApiResult MemoryApi::Update(const Resource& resource, const std::string& ns, const std::string& name,
                            const std::string& subresource, const WriteRequest& request,
                            const std::function<ApiResult(const Json& old, Json& next)>& change) {
  if (!subresource.empty() && (subresource != "status" || !HasStatus(resource)))
    return Failure(404, "NotFound", "the server could not find the requested resource");
  const MutexLock lock(mutex_);
  const auto& collection = collections_[Collection(resource)];
  const auto found = collection.find(Key(ns, name));
  if (found == collection.end()) return NotFound(resource, name);
  const Object old = found->second;
  Json next = *old;
  if (ApiResult changed = change(*old, next); !changed.ok()) return changed;
  if (!json::Field(next, "metadata").is_object()) return BadRequest("the object would have no metadata");
  const std::string version = TextAt(next, "/metadata/resourceVersion"), uid = TextAt(next, "/metadata/uid");
  if (!version.empty() && version != TextAt(*old, "/metadata/resourceVersion")) {
    return Conflict(resource, name,
                    "the object has been modified; please apply your changes to the latest version and try again");
  }
  if (!uid.empty() && uid != TextAt(*old, "/metadata/uid")) {
    return Conflict(
        resource, name,
        "Precondition failed: UID in precondition: " + uid + ", UID in object meta: " + TextAt(*old, "/metadata/uid"));
  }
  Json merged = TakeChanges(resource, subresource, *old, std::move(next));
  ApiResult result = Admit(resource, old.get(), request.strict, merged);
  if (!result.ok()) return result;
  RaiseGeneration(resource, *old, merged);
  const bool store = !request.dry_run && merged != *old;  // A write that changes nothing makes no version.
  result.body = store ? *Store(resource, old, merged) : merged;
  return result;
}

ApiResult MemoryApi::Replace(const Resource& resource, const std::string& ns, const std::string& name,
                             const std::string& subresource, Json object, const WriteRequest& request) {
  return Update(resource, ns, name, subresource, request, [&](const Json&, Json& next) {
    if (!object.is_object() || !json::Field(object, "metadata").is_object())
      return BadRequest("the body is no object with metadata");
    next = std::move(object);
    return ApiResult{};
  });
}

ApiResult MemoryApi::Patch(const Resource& resource, const std::string& ns, const std::string& name,
                           const std::string& subresource, PatchType type, const Json& patch,
                           const WriteRequest& request) {
  if (type == PatchType::kApply && Get(resource, ns, name).http == 404) {
    Json object = patch;
    if (!json::Field(object, "metadata").is_object()) return BadRequest("the body is no object with metadata");
    object["metadata"]["name"] = name;
    object["metadata"]["managedFields"] =
        ManagedFields(patch, Json::array(), request.manager, resource.ApiVersion(), clock_.Now());
    ApiResult created = Create(resource, ns, std::move(object), request);
    if (created.http != 409) return created;
  }
  return Update(resource, ns, name, subresource, request, [&](const Json& old, Json& next) {
    switch (type) {
      case PatchType::kMerge:
        if (!patch.is_object()) return BadRequest("the patch is no object");
        next.merge_patch(patch);
        break;
      case PatchType::kJson:
        try {
          next = next.patch(patch);
        } catch (const Json::exception&) {
          // In kube-apiserver's words; which operation it was the library does not tell.
          return Failure(422, "Invalid", "the server rejected our request due to an error in our request");
        }
        break;
      case PatchType::kApply:
        if (const std::string conflict =
                Apply(old, patch, request.manager, request.force, resource.ApiVersion(), clock_.Now(), next);
            !conflict.empty())
          return Failure(409, "Conflict", conflict);
        break;
    }
    return ApiResult{};
  });
}

ApiResult MemoryApi::Delete(const Resource& resource, const std::string& ns, const std::string& name,
                            const DeleteRequest& request) {
  const MutexLock lock(mutex_);
  const auto& collection = collections_[Collection(resource)];
  const auto found = collection.find(Key(ns, name));
  if (found == collection.end()) return NotFound(resource, name);
  const Object old = found->second;
  const std::string uid = TextAt(*old, "/metadata/uid");
  if ((!request.uid.empty() && request.uid != uid) ||
      (!request.resource_version.empty() && request.resource_version != TextAt(*old, "/metadata/resourceVersion")))
    return Conflict(resource, name, "the UID or resourceVersion in the precondition is not the object's");
  if (request.dry_run) return {200, *old, {}};
  if (resource == kube::kPods && !TextAt(*old, "/spec/nodeName").empty() && !HasEnded(*old)) {
    const int64_t grace =
        request.grace_seconds.value_or(json::Whole(json::Field(*old, "spec"), "terminationGracePeriodSeconds", 30));
    if (grace > 0) return {200, *Terminate(old, grace), {}};
  }
  if (request.propagation == "Orphan") Orphan(uid);
  Commit(Collection(resource), Key(ns, name), old, nullptr);
  return {200,
          {{"kind", "Status"},
           {"apiVersion", "v1"},
           {"metadata", Json::object()},
           {"status", "Success"},
           {"details", {{"name", name}, {"group", resource.group}, {"kind", resource.plural}, {"uid", uid}}}},
          {}};
}

// The first of a pod's two steps. A second delete can only shorten the wait.
MemoryApi::Object MemoryApi::Terminate(const Object& pod, int64_t grace) {
  const Json& metadata = json::Field(*pod, "metadata");
  const bool going = !json::Text(metadata, "deletionTimestamp").empty();
  if (going && grace >= json::Whole(metadata, "deletionGracePeriodSeconds")) return pod;
  Json next = *pod;
  next["metadata"]["deletionTimestamp"] = FormatTime(After(clock_.Now(), static_cast<double>(grace)));
  next["metadata"]["deletionGracePeriodSeconds"] = grace;
  return Store(kube::kPods, pod, std::move(next));
}

// Takes the owner `uid` from everything that it owns.
void MemoryApi::Orphan(const std::string& uid) {
  for (const Resource& resource : Resources()) {
    for (const auto& [key, object] : std::map(collections_[Collection(resource)])) {
      const Json& owners = json::List(json::Field(*object, "metadata"), "ownerReferences");
      Json kept = Json::array();
      std::copy_if(owners.begin(), owners.end(), std::back_inserter(kept),
                   [&](const Json& owner) { return json::Text(owner, "uid") != uid; });
      if (kept.size() == owners.size()) continue;
      Json next = *object;
      next["metadata"]["ownerReferences"] = kept;
      Store(resource, object, std::move(next));
    }
  }
}

MemoryApi::Object MemoryApi::Store(const Resource& resource, Object before, Json after) {
  after["metadata"]["resourceVersion"] = std::to_string(version_ + 1);
  auto stored = std::make_shared<const Json>(std::move(after));
  Commit(Collection(resource), Key(TextAt(*stored, "/metadata/namespace"), TextAt(*stored, "/metadata/name")),
         std::move(before), stored);
  return stored;
}

void MemoryApi::Commit(const std::string& collection, const std::string& key, Object before, Object after) {
  ++version_;
  if (follower_) follower_(version_, collection, key, after.get());
  if (after) {
    collections_[collection][key] = after;
  } else {
    collections_[collection].erase(key);
    // The event of a deletion carries the version of the deletion.
    Json last = *before;
    last["metadata"]["resourceVersion"] = std::to_string(version_);
    before = std::make_shared<const Json>(std::move(last));
  }
  history_.push_back({version_, collection, key, std::move(before), std::move(after)});
  if (history_.size() > kHistory) {
    oldest_ = history_.front().version;
    history_.pop_front();
  }
  changed_.NotifyAll();
}

bool MemoryApi::Next(const Resource& resource, const std::string& ns, const Selector& selector, uint64_t& since,
                     double seconds, std::vector<kube::WatchEvent>& events) const {
  const std::string collection = Collection(resource);
  const MutexLock lock(mutex_);
  if (version_ <= since && seconds > 0) changed_.WaitFor(mutex_, Seconds(seconds));
  if (since < oldest_) return false;
  const auto first = std::upper_bound(history_.begin(), history_.end(), since,
                                      [](uint64_t version, const Change& change) { return version < change.version; });
  for (auto change = first; change != history_.end(); ++change) {
    if (change->collection != collection || (!ns.empty() && !change->key.starts_with(ns + "/"))) continue;
    const bool was = change->before && selector.Matches(*change->before),
               is = change->after && selector.Matches(*change->after);
    // What leaves the selection is deleted for the watcher, what enters it is new.
    if (is) {
      events.push_back({was ? "MODIFIED" : "ADDED", *change->after});
    } else if (was) {
      Json last = *change->before;
      last["metadata"]["resourceVersion"] = std::to_string(change->version);
      events.push_back({"DELETED", std::move(last)});
    }
  }
  since = std::max(since, version_);
  return true;
}

uint64_t MemoryApi::version() const {
  const MutexLock lock(mutex_);
  return version_;
}

void MemoryApi::WakeAll() const { changed_.NotifyAll(); }

int MemoryApi::CollectGarbage() {
  std::vector<std::pair<const Resource*, Json>> orphans;
  {
    const MutexLock lock(mutex_);
    std::set<std::string> uids;
    for (const auto& [name, objects] : collections_) {
      for (const auto& [key, object] : objects) uids.insert(TextAt(*object, "/metadata/uid"));
    }
    for (const Resource& resource : Resources()) {
      for (const auto& [key, object] : collections_[Collection(resource)]) {
        const Json& owners = json::List(json::Field(*object, "metadata"), "ownerReferences");
        const bool lost = !owners.empty() && std::none_of(owners.begin(), owners.end(), [&](const Json& owner) {
          return uids.contains(json::Text(owner, "uid"));
        });
        if (lost && TextAt(*object, "/metadata/deletionTimestamp").empty())
          orphans.emplace_back(&resource, (*object)["metadata"]);
      }
    }
  }
  for (const auto& [resource, metadata] : orphans) {
    // One that went meanwhile, or came again as another, is none of ours.
    Delete(*resource, json::Text(metadata, "namespace"), json::Text(metadata, "name"),
           {.dry_run = false,
            .uid = json::Text(metadata, "uid"),
            .resource_version = "",
            .grace_seconds = std::nullopt,
            .propagation = ""});
  }
  return static_cast<int>(orphans.size());
}

void MemoryApi::Compact() {
  const MutexLock lock(mutex_);
  history_.clear();
  oldest_ = version_;
}

Json MemoryApi::Dump() const {
  const MutexLock lock(mutex_);
  Json dump = {{"version", version_}, {"collections", Json::object()}};
  for (const auto& [name, objects] : collections_) {
    for (const auto& [key, object] : objects) dump["collections"][name][key] = *object;
  }
  return dump;
}

void MemoryApi::FollowChanges(Follower follower) {
  const MutexLock lock(mutex_);
  follower_ = std::move(follower);
}

Status MemoryApi::Load(const Json& dump) {
  if (!dump.is_object() || !dump.contains("version") || !dump["version"].is_number_unsigned() ||
      !json::Field(dump, "collections").is_object()) {
    return Status(Code::kInvalid, "not the saved state of an API server");
  }
  const MutexLock lock(mutex_);
  collections_.clear();
  history_.clear();
  for (const auto& [name, objects] : dump["collections"].items()) {
    for (const auto& [key, object] : objects.items()) collections_[name][key] = std::make_shared<const Json>(object);
  }
  // Watches of an earlier life start again with a list.
  version_ = oldest_ = dump["version"].get<uint64_t>() + 1;
  random_.seed(random_() ^ version_);
  return Status::Ok();
}

}  // namespace trainyard::local
