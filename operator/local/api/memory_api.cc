#include "operator/local/api/memory_api.h"

#include <algorithm>
#include <charconv>
#include <cstdio>
#include <limits>

#include "operator/base/json_access.h"
#include "operator/local/api/admission.h"
#include "operator/local/api/apply.h"
#include "operator/local/api/object_limits.h"
#include "operator/local/api/service_address.h"
#include "operator/local/api/strategic_merge.h"

namespace trainyard::local {
namespace {

// Of the history: changes, and bytes of their objects' text.
constexpr size_t kHistory = 20000, kHistoryBytes = 64 << 20;
// A hundred years: the end of such a grace is a time that can still be said, and counted back from.
constexpr int64_t kLongestGrace = int64_t{100} * 366 * 86400;

std::string Key(const std::string& ns, const std::string& name) { return ns + "/" + name; }

std::string TextAt(const Json& object, const char* pointer) {
  const Json::json_pointer at(pointer);
  return object.contains(at) && object[at].is_string() ? object[at].get<std::string>() : "";
}

Json Going(Json object, Time by, int64_t grace) {
  object["metadata"]["deletionTimestamp"] = FormatTime(by);
  object["metadata"]["deletionGracePeriodSeconds"] = grace;
  return object;
}

// Where a list stands: the version that it is of, and the key that came last.
struct Page {
  uint64_t version;
  std::string after;
};

std::optional<uint64_t> Version(const std::string& text) {
  uint64_t version = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), version);
  return error == std::errc() && end == text.data() + text.size() ? std::optional(version) : std::nullopt;
}

// A page goes on after the key in its token, in the same snapshot or not at all. 400 for what is no token.
ApiResult PageOf(const kube::ListOptions& options, bool exact, Page& page) {
  if (const std::string& token = options.continue_token; !token.empty()) {
    const size_t colon = token.find(':');
    const std::optional<uint64_t> version = colon == std::string::npos ? std::nullopt : Version(token.substr(0, colon));
    if (!version) return BadRequest("invalid continue token: continue key is not valid: " + token);
    page = {.version = *version, .after = token.substr(colon + 1)};
  } else if (const std::optional<uint64_t> version = Version(options.resource_version)) {
    if (exact || *version > page.version) page.version = *version;
  }
  return {};
}

// `conflict`: as Apply says it, "...: conflict with "one": .spec.workers".
ApiResult FieldConflict(const std::string& conflict) {
  ApiResult result = Failure(409, "Conflict", conflict);
  const size_t with = conflict.find("conflict with"), field = conflict.rfind(": ");
  result.body["details"]["causes"] = Json::array({{{"reason", "FieldManagerConflict"},
                                                   {"message", conflict.substr(with, field - with)},
                                                   {"field", conflict.substr(field + 2)}}});
  return result;
}

ApiResult TooLarge(uint64_t version, uint64_t now) {
  ApiResult result =
      Failure(504, "Timeout",
              "Timeout: Too large resource version: " + std::to_string(version) + ", current: " + std::to_string(now));
  result.body["details"] = {
      {"retryAfterSeconds", 1},
      {"causes", Json::array({{{"reason", "ResourceVersionTooLarge"}, {"message", "Too large resource version"}}})}};
  return result;
}

}  // namespace

std::string MemoryApi::Collection(const Resource& resource) { return resource.plural + "." + resource.group; }

bool HasEnded(const Json& pod) {
  const std::string phase = json::Text(json::Field(pod, "status"), "phase");
  return phase == "Succeeded" || phase == "Failed";
}

MemoryApi::MemoryApi(const Clock& clock, uint64_t seed) : clock_(clock), random_(seed) {}

const std::vector<Resource>& MemoryApi::Resources() {
  static const std::vector<Resource> resources = {
      kube::kPods,      kube::kServices,         kube::kClaims,
      kube::kEvents,    kube::kLeases,           kube::kTrainingJobs,
      kube::kPodGroups, kube::kVolcanoPodGroups, kube::kCoschedulingPodGroups};
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

MemoryApi::Objects MemoryApi::ObjectsAt(const std::string& collection, uint64_t version) const {
  const auto found = collections_.find(collection);
  Objects objects = found == collections_.end() ? Objects() : found->second;
  for (auto change = history_.rbegin(); change != history_.rend() && change->version > version; ++change) {
    if (change->collection != collection) continue;
    change->before ? void(objects[change->key] = change->before) : void(objects.erase(change->key));
  }
  return objects;
}

ApiResult MemoryApi::List(const Resource& resource, const std::string& ns, const kube::ListOptions& options,
                          bool exact) const {
  const Result<Selector> selector = Selector::Parse(resource, options.label_selector, options.field_selector);
  if (!selector.ok()) return BadRequest(selector.status().message());
  const MutexLock lock(mutex_);
  Page page{.version = version_, .after = ""};
  if (ApiResult wrong = PageOf(options, exact, page); !wrong.ok()) return wrong;
  if (page.version > version_) return TooLarge(page.version, version_);
  if (page.version < oldest_)
    return Failure(410, "Expired",
                   "The provided continue parameter or resource version is too old to display a consistent list "
                   "result; start a new list without it.");
  const Objects objects = ObjectsAt(Collection(resource), page.version);
  Json items = Json::array();
  Json metadata = {{"resourceVersion", std::to_string(page.version)}};
  for (auto entry = objects.upper_bound(page.after); entry != objects.end(); ++entry) {
    if (!ns.empty() && !entry->first.starts_with(ns + "/")) continue;
    if (!selector->Matches(*entry->second)) continue;
    if (options.limit > 0 && items.size() == static_cast<size_t>(options.limit)) {
      metadata["continue"] = std::to_string(page.version) + ":" + page.after;
      if (selector->empty())
        metadata["remainingItemCount"] = std::count_if(
            entry, objects.end(), [&](const auto& each) { return ns.empty() || each.first.starts_with(ns + "/"); });
      break;
    }
    items.push_back(*entry->second);
    page.after = entry->first;
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
  if (ApiResult large = CheckBytes(nullptr, object); !large.ok()) return large;
  ApiResult result = Admit(resource, nullptr, request.strict, object);
  if (!result.ok()) return result;
  if (ApiResult deep = CheckDepth(resource, nullptr, object); !deep.ok()) return deep;
  const auto& collection = collections_[Collection(resource)];
  if (const auto found = collection.find(Key(ns, name)); found != collection.end())
    return AlreadyExists(resource, name, !TextAt(*found->second, "/metadata/deletionTimestamp").empty());
  if (resource == kube::kServices) {
    std::set<std::string> taken;
    for (const auto& [key, service] : collection) taken.insert(AddressOf(*service));
    if (const std::vector<api::Cause> causes = AssignAddress(object, taken); !causes.empty())
      return Invalid(resource, name, causes);
  }
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
  if (!subresource.empty() && (subresource != "status" || !HasStatus(resource))) return NoSuchPath();
  const MutexLock lock(mutex_);
  const auto& collection = collections_[Collection(resource)];
  const auto found = collection.find(Key(ns, name));
  if (found == collection.end()) return NotFound(resource, name);
  const Object old = found->second;
  Json next = *old;
  if (ApiResult changed = change(*old, next); !changed.ok()) return changed;
  if (!json::Field(next, "metadata").is_object()) return BadRequest("the object would have no metadata");
  if (const std::string own = TextAt(next, "/metadata/name"); own != name)
    return BadRequest("the name of the object (" + own + ") does not match the name on the URL (" + name + ")");
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
  if (ApiResult large = CheckBytes(old.get(), merged); !large.ok()) return large;
  ApiResult result = Admit(resource, old.get(), request.strict, merged);
  if (!result.ok()) return result;
  if (ApiResult deep = CheckDepth(resource, old.get(), merged); !deep.ok()) return deep;
  RaiseGeneration(resource, *old, merged);
  const bool store = !request.dry_run && merged != *old;  // A write that changes nothing makes no version.
  if (store && MayGo(resource, merged)) {
    result.body = merged;
    Commit(Collection(resource), Key(ns, name), old, nullptr);
    return result;
  }
  result.body = store ? *Store(resource, old, merged) : merged;
  return result;
}

ApiResult MemoryApi::Replace(const Resource& resource, const std::string& ns, const std::string& name,
                             const std::string& subresource, Json object, const WriteRequest& request) {
  return Update(resource, ns, name, subresource, request, [&](const Json&, Json& next) {
    if (!object.is_object() || !json::Field(object, "metadata").is_object())
      return BadRequest("the body is no object with metadata");
    if (resource == kube::kTrainingJobs && TextAt(object, "/metadata/resourceVersion").empty() &&
        TextAt(object, "/metadata/name") == name)
      return Invalid(resource, name,
                     {{"FieldValueInvalid", "Invalid value: 0: must be specified for an update",
                       "metadata.resourceVersion", "", ""}});
    next = std::move(object);
    return ApiResult{};
  });
}

ApiResult MemoryApi::Patch(const Resource& resource, const std::string& ns, const std::string& name,
                           const std::string& subresource, PatchType type, const Json& patch,
                           const WriteRequest& request) {
  if (const std::string own = TextAt(patch, "/metadata/name"); type == PatchType::kApply && !own.empty() && own != name)
    return BadRequest("the name of the object (" + own + ") does not match the name on the URL (" + name + ")");
  if (const std::string unknown = UnknownField(resource, patch);
      type == PatchType::kApply && !request.strict && !unknown.empty())
    return Failure(500, "",
                   "failed to create typed patch object (" + ns + "/" + name + "; " + resource.ApiVersion() +
                       ", Kind=" + resource.kind + "): ." + unknown + ": field not declared in schema");
  if (type == PatchType::kApply && Get(resource, ns, name).http == 404) {
    Json object = patch;
    if (!json::Field(object, "metadata").is_object()) return BadRequest("the body is no object with metadata");
    object["metadata"]["name"] = name;
    object["metadata"]["managedFields"] =
        ManagedFields(patch, Json::array(), request.manager, resource.ApiVersion(), clock_.Now(), AtomicMaps(resource));
    ApiResult created = Create(resource, ns, std::move(object), request);
    if (created.http != 409) return created;
  }
  const bool custom = resource == kube::kTrainingJobs;
  return Update(resource, ns, name, subresource, request, [&](const Json& old, Json& next) {
    switch (type) {
      case PatchType::kMerge:
        if (!patch.is_object()) return BadRequest("the patch is no object");
        next.merge_patch(patch);
        if (const std::string uid = TextAt(next, "/metadata/uid");
            custom && !uid.empty() && uid != TextAt(old, "/metadata/uid"))
          return Invalid(resource, name,
                         {{"FieldValueInvalid", "Invalid value: " + Json(uid).dump() + ": field is immutable",
                           "metadata.uid", "", ""}});
        break;
      case PatchType::kStrategic:
        if (!patch.is_object()) return BadRequest("the patch is no object");
        StrategicMerge(next, patch);
        break;
      case PatchType::kJson:
        if (ApiResult wrong = JsonPatch(resource, name, patch, next); !wrong.ok()) return wrong;
        break;
      case PatchType::kApply:
        if (const std::string conflict = Apply(old, patch, request.manager, request.force, resource.ApiVersion(),
                                               clock_.Now(), AtomicMaps(resource), next);
            !conflict.empty())
          return FieldConflict(conflict);
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
  const std::string version = TextAt(*old, "/metadata/resourceVersion");
  if (!request.uid.empty() && request.uid != uid)
    return Conflict(resource, name,
                    "the UID in the precondition (" + request.uid + ") does not match the UID in record (" + uid +
                        "). The object might have been deleted and then recreated");
  if (!request.resource_version.empty() && request.resource_version != version)
    return Conflict(resource, name,
                    "the ResourceVersion in the precondition (" + request.resource_version +
                        ") does not match the ResourceVersion in record (" + version +
                        "). The object might have been modified");
  const bool pod = resource == kube::kPods, runs = pod && !TextAt(*old, "/spec/nodeName").empty() && !HasEnded(*old);
  const int64_t own = json::Whole(json::Field(*old, "spec"), "terminationGracePeriodSeconds", 30);
  const int64_t grace = runs ? std::clamp<int64_t>(request.grace_seconds.value_or(own), 0, kLongestGrace) : 0;
  const bool foreground = request.propagation == "Foreground";
  const bool held = !json::List((*old)["metadata"], "finalizers").empty() || foreground;
  const ApiResult gone = {
      200,
      {{"kind", "Status"},
       {"apiVersion", "v1"},
       {"metadata", Json::object()},
       {"status", "Success"},
       {"details", {{"name", name}, {"group", resource.group}, {"kind", resource.plural}, {"uid", uid}}}},
      {}};
  if (request.dry_run) return pod ? ApiResult{200, *old, {}} : gone;
  if (request.propagation == "Orphan") Orphan(uid);
  if (grace > 0 || held) return {200, *Terminate(resource, old, grace, foreground), {}};
  const Object last = pod ? Terminate(resource, old, 0, false) : old;
  Commit(Collection(resource), Key(ns, name), last, nullptr);
  return pod ? ApiResult{200, *last, {}} : gone;
}

// The first of two steps. Another delete can only shorten the wait, which began with the first, and never to an end in
// the past (BeforeDelete of k8s.io/apiserver).
MemoryApi::Object MemoryApi::Terminate(const Resource& resource, const Object& object, int64_t grace, bool foreground) {
  const Json& metadata = json::Field(*object, "metadata");
  const bool going = !json::Text(metadata, "deletionTimestamp").empty();
  const Time now = clock_.Now();
  const int64_t before = json::Whole(metadata, "deletionGracePeriodSeconds");
  const Time end = ParseTime(json::Text(metadata, "deletionTimestamp")).value_or(now);
  Json next = *object;
  if (!going) {
    next = Going(*object, After(now, static_cast<double>(grace)), grace);
  } else if (grace < before) {
    const Time sooner = After(end, -static_cast<double>(before - grace));
    // What has a grace is for whoever runs it to end.
    next = Going(*object, std::max(now, sooner), sooner >= now ? grace : std::min<int64_t>(grace, 1));
  }
  Json finalizers = json::List(metadata, "finalizers");
  const bool waits = std::find(finalizers.begin(), finalizers.end(), kForeground) != finalizers.end();
  if (foreground && !waits) {
    finalizers.push_back(kForeground);
    next["metadata"]["finalizers"] = std::move(finalizers);
  }
  return next == *object ? object : Store(resource, object, std::move(next));
}

bool MemoryApi::MayGo(const Resource& resource, const Json& object) {
  const Json& metadata = json::Field(object, "metadata");
  return !json::Text(metadata, "deletionTimestamp").empty() && json::List(metadata, "finalizers").empty() &&
         (resource != kube::kPods || json::Whole(metadata, "deletionGracePeriodSeconds") == 0);
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
  }
  const size_t bytes = Weight(after ? *after : *before, SIZE_MAX);  // what was before is the change's before this one
  history_.push_back({version_, collection, key, std::move(before), std::move(after), bytes});
  history_bytes_ += bytes;
  TrimHistory();
  changed_.NotifyAll();
}

void MemoryApi::TrimHistory() {
  while (history_.size() > kHistory || history_bytes_ > kHistoryBytes) {
    oldest_ = history_.front().version;
    history_bytes_ -= history_.front().bytes;
    history_.pop_front();
  }
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
    } else if (was) {  // The event of a deletion carries the version of the deletion.
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

void MemoryApi::Compact() {
  const MutexLock lock(mutex_);
  history_.clear();
  history_bytes_ = 0;
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

Status MemoryApi::CheckSaved(const std::string& collection, const std::string& key, const Json& object) {
  const auto damaged = [&](const std::string& how) {
    return Status(Code::kInvalid, "collection " + collection + ", key " + key + ": " + how);
  };
  if (!object.is_object()) return damaged("is no object");
  const Json& metadata = json::Field(object, "metadata");
  for (const char* field : {"name", "namespace", "uid", "resourceVersion"}) {
    if (json::Text(metadata, field).empty()) return damaged(std::string("metadata.") + field + ": allowed: a text");
  }
  if (key != Key(json::Text(metadata, "namespace"), json::Text(metadata, "name")))
    return damaged("is another object's: metadata has another name or namespace");
  return Status::Ok();
}

Status MemoryApi::Load(const Json& dump) {
  if (!dump.is_object() || !dump.contains("version") || !dump["version"].is_number_unsigned() ||
      !json::Field(dump, "collections").is_object()) {
    return Status(Code::kInvalid, "not the saved state of an API server");
  }
  // Versions are written as signed ones, too (resourceVersion), and there must be some left.
  if (dump["version"].get<uint64_t>() > std::numeric_limits<int64_t>::max() / 2)
    return Status(Code::kInvalid, "version: " + dump["version"].dump() + " is beyond what an API server reaches");
  std::map<std::string, Objects> collections;
  for (const auto& [name, objects] : dump["collections"].items()) {
    if (!objects.is_object()) return Status(Code::kInvalid, "collection " + name + ": is no object");
    for (const auto& [key, stored] : objects.items()) {
      if (Status status = CheckSaved(name, key, stored); !status.ok()) return status;
      Json object = stored;
      ReadBack(name, object);
      collections[name][key] = std::make_shared<const Json>(std::move(object));
    }
  }
  const MutexLock lock(mutex_);
  collections_ = std::move(collections);
  history_.clear();
  history_bytes_ = 0;
  // Watches of an earlier life start again with a list.
  version_ = oldest_ = dump["version"].get<uint64_t>() + 1;
  random_.seed(random_() ^ version_);
  return Status::Ok();
}

}  // namespace trainyard::local
