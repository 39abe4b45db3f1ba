// The garbage collector's part of the in-memory API.
#include <algorithm>
#include <set>

#include "operator/base/json_access.h"
#include "operator/local/api/memory_api.h"

namespace trainyard::local {
namespace {

const Json& Owners(const Json& object) { return json::List(json::Field(object, "metadata"), "ownerReferences"); }

bool Going(const Json& object) { return !json::Text(json::Field(object, "metadata"), "deletionTimestamp").empty(); }

bool Has(const Json& list, const char* item) { return std::find(list.begin(), list.end(), item) != list.end(); }

}  // namespace

// Takes the owner `uid` from everything that it owns.
void MemoryApi::Orphan(const std::string& uid) {
  for (const Resource& resource : Resources()) {
    for (const auto& [key, object] : Objects(collections_[Collection(resource)])) {
      const Json& owners = Owners(*object);
      Json kept = Json::array();
      std::copy_if(owners.begin(), owners.end(), std::back_inserter(kept),
                   [&](const Json& owner) { return json::Text(owner, "uid") != uid; });
      if (kept.size() == owners.size()) continue;
      Json next = *object;
      next["metadata"]["ownerReferences"] = kept;
      if (kept.empty()) next["metadata"].erase("ownerReferences");
      Store(resource, object, std::move(next));
    }
  }
}

int MemoryApi::CollectGarbage() {
  std::vector<std::pair<const Resource*, Json>> orphans;
  int ended = 0;
  {
    const MutexLock lock(mutex_);
    ended = EndForeground();
    std::map<std::string, bool> stays;  // by uid: whether an owner keeps what it owns
    for (const auto& [name, objects] : collections_) {
      for (const auto& [key, object] : objects) {
        const Json& metadata = json::Field(*object, "metadata");
        stays[json::Text(metadata, "uid")] = !Going(*object) || !Has(json::List(metadata, "finalizers"), kForeground);
      }
    }
    for (const Resource& resource : Resources()) {
      for (const auto& [key, object] : collections_[Collection(resource)]) {
        const Json& owners = Owners(*object);
        const bool lost = !owners.empty() && std::none_of(owners.begin(), owners.end(), [&](const Json& owner) {
          const auto found = stays.find(json::Text(owner, "uid"));
          return found != stays.end() && found->second;
        });
        if (lost && !Going(*object)) orphans.emplace_back(&resource, (*object)["metadata"]);
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
  return ended + static_cast<int>(orphans.size());
}

int MemoryApi::EndForeground() {
  std::vector<std::pair<const Resource*, Object>> waiting;
  for (const Resource& resource : Resources()) {
    for (const auto& [key, object] : collections_[Collection(resource)]) {
      if (Going(*object) && Has(json::List((*object)["metadata"], "finalizers"), kForeground))
        waiting.emplace_back(&resource, object);
    }
  }
  if (waiting.empty()) return 0;
  std::set<std::string> awaited;  // uids of owners that a dependent holds
  for (const auto& [name, objects] : collections_) {
    for (const auto& [key, object] : objects) {
      for (const Json& owner : Owners(*object)) {
        if (json::Flag(owner, "blockOwnerDeletion")) awaited.insert(json::Text(owner, "uid"));
      }
    }
  }
  int ended = 0;
  for (const auto& [resource, object] : waiting) {
    const Json& metadata = (*object)["metadata"];
    if (awaited.contains(json::Text(metadata, "uid"))) continue;
    Json next = *object;
    std::erase(next["metadata"]["finalizers"].get_ref<Json::array_t&>(), kForeground);
    ++ended;
    const std::string key = json::Text(metadata, "namespace") + "/" + json::Text(metadata, "name");
    MayGo(*resource, next) ? Commit(Collection(*resource), key, object, nullptr)
                           : void(Store(*resource, object, std::move(next)));
  }
  return ended;
}

}  // namespace trainyard::local
