#include "operator/local/memory_api.h"

#include <algorithm>
#include <cstdio>
#include <set>

#include "operator/api/crd.h"
#include "operator/api/json.h"
#include "operator/api/pod_fields.h"
#include "operator/api/rules.h"
#include "operator/api/schema.h"
#include "operator/base/json_access.h"
#include "operator/local/apply.h"

namespace trainyard::local {
namespace {

using api::Cause;

constexpr size_t kHistory = 20000;

std::string Collection(const Resource& resource) { return resource.plural + "." + resource.group; }
std::string Key(const std::string& ns, const std::string& name) { return ns + "/" + name; }

std::string TextAt(const Json& object, const char* pointer) {
  const Json::json_pointer at(pointer);
  return object.contains(at) && object[at].is_string() ? object[at].get<std::string>() : "";
}

ApiResult NotFound(const Resource& resource, const std::string& name) {
  ApiResult result =
      Failure(404, "NotFound",
              resource.plural + (resource.group.empty() ? "" : "." + resource.group) + " \"" + name + "\" not found");
  result.body["details"] = {{"name", name}, {"group", resource.group}, {"kind", resource.plural}};
  return result;
}

ApiResult Invalid(const Resource& resource, const std::string& name, const std::vector<Cause>& causes) {
  std::string text;
  Json list = Json::array();
  for (const Cause& cause : causes) {
    const std::string line = (cause.field.empty() ? "" : cause.field + ": ") + cause.message;
    text += (text.empty() ? "" : ", ") + line;
    list.push_back({{"reason", cause.reason}, {"message", cause.message}, {"field", cause.field}});
  }
  if (causes.size() > 1) text = "[" + text + "]";
  ApiResult result = Failure(
      422, "Invalid",
      resource.kind + (resource.group.empty() ? "" : "." + resource.group) + " \"" + name + "\" is invalid: " + text);
  result.body["details"] = {{"name", name}, {"group", resource.group}, {"kind", resource.kind}, {"causes", list}};
  return result;
}

bool IsDnsName(const std::string& name) {
  if (name.empty() || name.size() > 253) return false;
  const auto alnum = [](char c) { return (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9'); };
  return alnum(name.front()) && alnum(name.back()) &&
         std::all_of(name.begin(), name.end(), [&](char c) { return alnum(c) || c == '-' || c == '.'; });
}

bool HasStatus(const Resource& resource) { return resource == kube::kTrainingJobs || resource == kube::kPods; }

// Every value at `path` of `object`, with its own path.
void ForEachAt(const Json& object, const std::vector<const char*>& path, size_t depth, const std::string& name,
               const std::function<void(const Json&, const std::string&)>& f) {
  if (object.is_null()) return;
  if (depth == path.size()) return f(object, name);
  const std::string part = path[depth];
  if (part != "[]")
    return ForEachAt(json::Field(object, path[depth]), path, depth + 1, name.empty() ? part : name + "." + part, f);
  if (!object.is_array()) return;
  for (size_t i = 0; i < object.size(); ++i)
    ForEachAt(object[i], path, depth + 1, name + "[" + std::to_string(i) + "]", f);
}

// What the CRD's rules say of an object that fits the schema.
std::vector<Cause> CheckRules(const Json& object, const Json* old) {
  std::vector<Cause> causes;
  for (const api::FieldRule& rule : api::FieldRules()) {
    ForEachAt(object, rule.path, 0, "", [&](const Json& value, const std::string& path) {
      if (!rule.allows(value))
        causes.push_back(
            {"FieldValueInvalid", "Invalid value: " + api::Shown(value) + ": " + rule.message, path, "", ""});
    });
  }
  for (const api::Rule& rule : api::RootRules()) {
    if (!rule.allows(object, old))
      causes.push_back({"FieldValueInvalid", std::string("Invalid value: \"object\": ") + rule.message, "", "", ""});
  }
  return causes;
}

// A pod is its template with a name and a status.
const Json& PodSchema() {
  static const Json schema = [] {
    Json pod = api::PodTemplateSchema();
    pod["required"] = {"spec"};
    for (const char* text : {"apiVersion", "kind"}) pod["properties"][text] = {{"type", "string"}};
    pod["properties"]["status"] = {{"type", "object"}};
    return pod;
  }();
  return schema;
}

const Json& JobSchema() {
  static const Json schema = api::JobSchema();
  return schema;
}

// What a server fills in that others rely on.
void DefaultPod(Json& pod) {
  Json& spec = pod["spec"];
  for (const auto& [key, value] : {std::pair<const char*, Json>{"restartPolicy", "Always"},
                                   {"terminationGracePeriodSeconds", 30},
                                   {"schedulerName", "default-scheduler"}}) {
    if (!spec.contains(key)) spec[key] = value;
  }
  for (const char* list : {"initContainers", "containers"}) {
    if (!spec.contains(list) || !spec[list].is_array()) continue;
    for (Json& container : spec[list]) {
      if (!container.is_object()) continue;
      if (!container.contains("terminationMessagePath")) container["terminationMessagePath"] = "/dev/termination-log";
      if (!container.contains("terminationMessagePolicy")) container["terminationMessagePolicy"] = "File";
    }
  }
  pod["status"] = {{"phase", "Pending"}, {"qosClass", "BestEffort"}};
}

}  // namespace

bool HasEnded(const Json& pod) {
  const std::string phase = json::Text(json::Field(pod, "status"), "phase");
  return phase == "Succeeded" || phase == "Failed";
}

ApiResult Failure(int http, const std::string& reason, const std::string& message) {
  return {http,
          {{"kind", "Status"},
           {"apiVersion", "v1"},
           {"metadata", Json::object()},
           {"status", "Failure"},
           {"reason", reason},
           {"message", message},
           {"code", http}},
          {}};
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
  if (!selector.ok()) return Failure(400, "BadRequest", selector.status().message());
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

// Schema, CEL twins, defaults: what happens to an object before it is stored.
ApiResult MemoryApi::Admit(const Resource& resource, const Json* old, Json& object, const WriteRequest& request) const {
  const bool job = resource == kube::kTrainingJobs, pod = resource == kube::kPods, new_pod = pod && !old;
  if (!job && !pod) return {};
  const Json& schema = job ? JobSchema() : PodSchema();
  ApiResult result;
  for (const api::UnknownField& field : api::Prune(schema, object, ""))
    result.warnings.push_back("unknown field \"" + field.path + "\"");
  if (request.strict && !result.warnings.empty()) {
    std::string text;
    for (const std::string& warning : result.warnings) text += (text.empty() ? "" : ", ") + warning;
    return Failure(400, "BadRequest",
                   resource.kind + " in version \"" + resource.version + "\" cannot be handled as a " + resource.kind +
                       ": strict decoding error: " + text);
  }
  std::vector<Cause> causes = api::CheckSchema(schema, object, "");
  if (causes.empty() && job) causes = CheckRules(object, old);
  if (causes.empty() && new_pod && object["spec"]["containers"].empty())
    causes.push_back({"FieldValueRequired", "Required value", "spec.containers", "", ""});
  if (!causes.empty()) return Invalid(resource, TextAt(object, "/metadata/name"), causes);
  if (new_pod) DefaultPod(object);
  return result;
}

ApiResult MemoryApi::Create(const Resource& resource, const std::string& ns, Json object, const WriteRequest& request) {
  if (!object.is_object()) return Failure(400, "BadRequest", "the body is no object");
  if (TextAt(object, "/kind") != resource.kind || TextAt(object, "/apiVersion") != resource.ApiVersion()) {
    return Failure(400, "BadRequest",
                   "the object's kind is " + TextAt(object, "/apiVersion") + " " + TextAt(object, "/kind") +
                       "; expected " + resource.ApiVersion() + " " + resource.kind);
  }
  Json& metadata = object["metadata"];
  if (!metadata.is_object()) metadata = Json::object();
  if (const std::string own = TextAt(object, "/metadata/namespace"); !own.empty() && own != ns) {
    return Failure(400, "BadRequest",
                   "the namespace of the provided object does not match the namespace sent on the request");
  }
  metadata["namespace"] = ns;
  const MutexLock lock(mutex_);
  if (TextAt(object, "/metadata/name").empty() && !TextAt(object, "/metadata/generateName").empty())
    metadata["name"] = metadata["generateName"].get<std::string>() + NewUid().substr(0, 5);
  const std::string name = TextAt(object, "/metadata/name");
  if (!IsDnsName(name)) {
    return Invalid(
        resource, name,
        {{name.empty() ? "FieldValueRequired" : "FieldValueInvalid",
          name.empty()
              ? "Required value: name or generateName is required"
              : "Invalid value: \"" + name +
                    "\": a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '-' or '.'",
          "metadata.name", "", ""}});
  }
  if (HasStatus(resource)) object.erase("status");
  for (const char* key :
       {"resourceVersion", "deletionTimestamp", "deletionGracePeriodSeconds", "selfLink", "uid", "generation"})
    metadata.erase(key);
  ApiResult result = Admit(resource, nullptr, object, request);
  if (!result.ok()) return result;
  auto& collection = collections_[Collection(resource)];
  if (const auto found = collection.find(Key(ns, name)); found != collection.end()) {
    const bool going = !TextAt(*found->second, "/metadata/deletionTimestamp").empty();
    ApiResult exists =
        Failure(409, "AlreadyExists",
                (going ? "object is being deleted: " : "") + resource.plural +
                    (resource.group.empty() ? "" : "." + resource.group) + " \"" + name + "\" already exists");
    exists.body["details"] = {{"name", name}, {"group", resource.group}, {"kind", resource.plural}};
    return exists;
  }
  object["metadata"]["uid"] = NewUid();
  object["metadata"]["creationTimestamp"] = FormatTime(clock_.Now());
  if (resource == kube::kTrainingJobs) object["metadata"]["generation"] = 1;
  result.http = 201;
  if (request.dry_run) {
    result.body = std::move(object);
    return result;
  }
  object["metadata"]["resourceVersion"] = std::to_string(version_ + 1);
  auto stored = std::make_shared<const Json>(std::move(object));
  Commit(Collection(resource), Key(ns, name), nullptr, stored);
  result.body = *stored;
  return result;
}

// Reads, changes and writes one object under the lock; `change` makes `next` of a copy of the old.
ApiResult MemoryApi::Update(const Resource& resource, const std::string& ns, const std::string& name,
                            const std::string& subresource, const WriteRequest& request,
                            const std::function<ApiResult(const Json& old, Json& next)>& change) {
  if (!subresource.empty() && (subresource != "status" || !HasStatus(resource)))
    return Failure(404, "NotFound", "the server could not find the requested resource");
  const MutexLock lock(mutex_);
  auto& collection = collections_[Collection(resource)];
  const auto found = collection.find(Key(ns, name));
  if (found == collection.end()) return NotFound(resource, name);
  const Object old = found->second;
  Json next = *old;
  if (ApiResult changed = change(*old, next); !changed.ok()) return changed;
  const std::string version = TextAt(next, "/metadata/resourceVersion");
  if (!version.empty() && version != TextAt(*old, "/metadata/resourceVersion")) {
    return Failure(
        409, "Conflict",
        "Operation cannot be fulfilled on " + resource.plural + (resource.group.empty() ? "" : "." + resource.group) +
            " \"" + name +
            "\": the object has been modified; please apply your changes to the latest version and try again");
  }
  if (const std::string uid = TextAt(next, "/metadata/uid"); !uid.empty() && uid != TextAt(*old, "/metadata/uid")) {
    return Failure(
        409, "Conflict",
        "Precondition failed: UID in precondition: " + uid + ", UID in object meta: " + TextAt(*old, "/metadata/uid"));
  }
  // Each of the two doors lets through its own part.
  const Json spec = json::Field(next, "spec"), status = json::Field(next, "status");
  const Json labels = json::Field(next["metadata"], "labels"),
             annotations = json::Field(next["metadata"], "annotations");
  const Json owners = json::Field(next["metadata"], "ownerReferences"),
             managed = json::Field(next["metadata"], "managedFields");
  const auto put = [](Json& object, const char* key, const Json& value) {
    value.is_null() ? void(object.erase(key)) : void(object[key] = value);
  };
  Json merged = HasStatus(resource) ? *old : next;
  merged["metadata"] = (*old)["metadata"];
  if (subresource == "status") {
    put(merged, "status", status);
  } else {
    if (HasStatus(resource)) put(merged, "spec", spec);
    put(merged["metadata"], "labels", labels);
    put(merged["metadata"], "annotations", annotations);
    put(merged["metadata"], "ownerReferences", owners);
  }
  put(merged["metadata"], "managedFields", managed);
  if (resource == kube::kTrainingJobs && merged["spec"] != (*old)["spec"])
    merged["metadata"]["generation"] = (*old)["metadata"].value("generation", int64_t{1}) + 1;
  ApiResult result = Admit(resource, old.get(), merged, request);
  if (!result.ok()) return result;
  result.http = 200;
  if (request.dry_run || merged == *old) {  // A write that changes nothing makes no version.
    result.body = std::move(merged);
    return result;
  }
  merged["metadata"]["resourceVersion"] = std::to_string(version_ + 1);
  auto stored = std::make_shared<const Json>(std::move(merged));
  Commit(Collection(resource), Key(ns, name), old, stored);
  result.body = *stored;
  return result;
}

ApiResult MemoryApi::Replace(const Resource& resource, const std::string& ns, const std::string& name,
                             const std::string& subresource, Json object, const WriteRequest& request) {
  return Update(resource, ns, name, subresource, request, [&](const Json&, Json& next) {
    if (!object.is_object() || !json::Field(object, "metadata").is_object())
      return Failure(400, "BadRequest", "the body is no object with metadata");
    next = std::move(object);
    return ApiResult{};
  });
}

ApiResult MemoryApi::Patch(const Resource& resource, const std::string& ns, const std::string& name,
                           const std::string& subresource, PatchType type, const Json& patch,
                           const WriteRequest& request) {
  if (type == PatchType::kApply && Get(resource, ns, name).http == 404) {
    Json object = patch;
    if (!object.is_object()) return Failure(400, "BadRequest", "the body is no object");
    object["metadata"]["name"] = name;
    object["metadata"]["managedFields"] =
        ManagedFields(patch, Json::array(), request.manager, resource.ApiVersion(), clock_.Now());
    ApiResult created = Create(resource, ns, std::move(object), request);
    if (created.http != 409) return created;
  }
  return Update(resource, ns, name, subresource, request, [&](const Json& old, Json& next) {
    switch (type) {
      case PatchType::kMerge:
        if (!patch.is_object()) return Failure(400, "BadRequest", "the patch is no object");
        next.merge_patch(patch);
        break;
      case PatchType::kJson:
        try {
          next = next.patch(patch);
        } catch (const Json::exception& error) {
          return Failure(422, "Invalid", std::string("the patch does not apply: ") + error.what());
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
  auto& collection = collections_[Collection(resource)];
  const auto found = collection.find(Key(ns, name));
  if (found == collection.end()) return NotFound(resource, name);
  const Object old = found->second;
  const std::string uid = TextAt(*old, "/metadata/uid");
  if ((!request.uid.empty() && request.uid != uid) ||
      (!request.resource_version.empty() && request.resource_version != TextAt(*old, "/metadata/resourceVersion"))) {
    return Failure(409, "Conflict",
                   "Operation cannot be fulfilled on " + resource.plural + " \"" + name +
                       "\": the UID or resourceVersion in the precondition is not the object's");
  }
  if (request.dry_run) return {200, *old, {}};
  if (resource == kube::kPods && !TextAt(*old, "/spec/nodeName").empty() && !HasEnded(*old)) {
    const int64_t grace =
        request.grace_seconds.value_or(json::Whole(json::Field(*old, "spec"), "terminationGracePeriodSeconds", 30));
    const bool going = !TextAt(*old, "/metadata/deletionTimestamp").empty();
    // A second delete can only shorten the wait.
    if (grace > 0) {
      if (going && grace >= json::Whole(json::Field(*old, "metadata"), "deletionGracePeriodSeconds"))
        return {200, *old, {}};
      Json next = *old;
      next["metadata"]["deletionTimestamp"] = FormatTime(After(clock_.Now(), static_cast<double>(grace)));
      next["metadata"]["deletionGracePeriodSeconds"] = grace;
      next["metadata"]["resourceVersion"] = std::to_string(version_ + 1);
      auto stored = std::make_shared<const Json>(std::move(next));
      Commit(Collection(resource), Key(ns, name), old, stored);
      return {200, *stored, {}};
    }
  }
  if (request.propagation == "Orphan") {
    for (auto& [other_name, others] : collections_) {
      for (auto& [key, object] : std::map(others)) {
        const Json owners = json::List(json::Field(*object, "metadata"), "ownerReferences");
        Json kept = Json::array();
        std::copy_if(owners.begin(), owners.end(), std::back_inserter(kept),
                     [&](const Json& owner) { return json::Text(owner, "uid") != uid; });
        if (kept.size() == owners.size()) continue;
        Json next = *object;
        next["metadata"]["ownerReferences"] = kept;
        next["metadata"]["resourceVersion"] = std::to_string(version_ + 1);
        Commit(other_name, key, object, std::make_shared<const Json>(std::move(next)));
      }
    }
  }
  Commit(Collection(resource), Key(ns, name), old, nullptr);
  return {200,
          {{"kind", "Status"},
           {"apiVersion", "v1"},
           {"metadata", Json::object()},
           {"status", "Success"},
           {"details", {{"name", name}, {"group", resource.group}, {"kind", resource.plural}, {"uid", uid}}}},
          {}};
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
        const Json owners = json::List(json::Field(*object, "metadata"), "ownerReferences");
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
