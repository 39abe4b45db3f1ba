// A Kubernetes API server's behaviour without the server: objects, versions, watches, conflicts,
// validation, graceful deletion, owner references. What it promises is what the conformance suite
// (tests/cluster) proves against a real kube-apiserver.
//
//   - resourceVersion is one counter for all objects; a watch from version v gets every change after v
//     in order, or 410 when the history no longer reaches back that far. It is bounded in changes and in bytes.
//   - An object beyond about 1.5 MiB of text, etcd's limit, gets 413.
//   - A write that carries an old resourceVersion, and a delete with another uid, gets 409.
//   - `generation` counts changes of a custom resource's spec; status is written through the status
//     subresource alone.
//   - A pod that is bound and not finished is deleted in two steps: deletionTimestamp with the grace,
//     then for good when whoever runs it deletes it with grace 0. That is two changes: deletionTimestamp becomes
//     the present, then the pod is gone. An object with finalizers gets a deletionTimestamp, and goes when a write
//     takes the last of them away.
//   - A list of an older version (a page's successor, resourceVersionMatch=Exact) is what there was then, or
//     410 when the history no longer reaches back that far.
//   - Objects whose owner is gone are deleted by CollectGarbage, which its user calls; it also ends
//     deletions in the foreground, the dependents first.
#ifndef TRAINYARD_OPERATOR_LOCAL_API_MEMORY_API_H_
#define TRAINYARD_OPERATOR_LOCAL_API_MEMORY_API_H_

#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <nlohmann/json.hpp>
#include <random>
#include <string>
#include <vector>

#include "operator/base/clock.h"
#include "operator/base/mutex.h"
#include "operator/kube/client.h"
#include "operator/local/api/api_result.h"
#include "operator/local/api/selector.h"

namespace trainyard::local {

enum class PatchType { kMerge, kStrategic, kJson, kApply };

struct WriteRequest {
  bool dry_run = false;
  bool strict = false;
  std::string manager;  // field manager
  bool force = false;   // apply: take over fields of other managers
};

struct DeleteRequest {
  bool dry_run = false;
  std::string uid, resource_version;
  std::optional<int64_t> grace_seconds;
  std::string propagation;  // Background (also when empty), Foreground, Orphan
};

// Thread-safe.
class MemoryApi {
 public:
  // `seed`: of the uids.
  MemoryApi(const Clock& clock, uint64_t seed);

  // The resources it serves, in the order of discovery.
  static const std::vector<Resource>& Resources();
  // Null when there is none.
  static const Resource* FindResource(const std::string& group, const std::string& version, const std::string& plural);

  ApiResult Get(const Resource& resource, const std::string& ns, const std::string& name) const;
  // `exact`: what there was at options.resource_version, instead of what there is now.
  ApiResult List(const Resource& resource, const std::string& ns, const kube::ListOptions& options,
                 bool exact = false) const;
  ApiResult Create(const Resource& resource, const std::string& ns, Json object, const WriteRequest& request);
  ApiResult Replace(const Resource& resource, const std::string& ns, const std::string& name,
                    const std::string& subresource, Json object, const WriteRequest& request);
  ApiResult Patch(const Resource& resource, const std::string& ns, const std::string& name,
                  const std::string& subresource, PatchType type, const Json& patch, const WriteRequest& request);
  // The object while it is going, and when a pod is gone; else a Status that names it.
  ApiResult Delete(const Resource& resource, const std::string& ns, const std::string& name,
                   const DeleteRequest& request);

  // Changes after `since`, oldest first, that touch what the selector selects; waits up to `seconds`
  // for the first. `since` moves to the newest version looked at. False: the history no longer holds it.
  bool Next(const Resource& resource, const std::string& ns, const Selector& selector, uint64_t& since, double seconds,
            std::vector<kube::WatchEvent>& events) const;
  uint64_t version() const;
  // Wakes every Next, for the end.
  void WakeAll() const;

  // Deletes what lost its owner. Returns how many objects it touched.
  int CollectGarbage();
  // Forgets the history, so that every older watch gets 410; for tests.
  void Compact();

  // Everything, for the journal, and back. Load keeps uids and versions. kInvalid, naming the collection and the key,
  // when it is no such dump; then nothing is changed.
  Json Dump() const;
  Status Load(const Json& dump);
  // Whether the object is one that Load takes.
  static Status CheckSaved(const std::string& collection, const std::string& key, const Json& object);
  // `follower` hears of every change, in order, before anyone else sees it; `object` null: deleted. It is
  // called under the API's lock and must not call back. Null: nobody.
  using Follower =
      std::function<void(uint64_t version, const std::string& collection, const std::string& key, const Json* object)>;
  void FollowChanges(Follower follower);

 private:
  using Object = std::shared_ptr<const Json>;
  using Objects = std::map<std::string, Object>;  // by "namespace/name"
  struct Change {
    uint64_t version;
    std::string collection, key;
    Object before, after;  // null: not there
    size_t bytes;          // of the text of what it added to the history
  };

  ApiResult Update(const Resource& resource, const std::string& ns, const std::string& name,
                   const std::string& subresource, const WriteRequest& request,
                   const std::function<ApiResult(const Json& old, Json& next)>& change);
  // The objects of a collection at `version`. REQUIRES: oldest_ <= version <= version_.
  Objects ObjectsAt(const std::string& collection, uint64_t version) const REQUIRES_LOCK(mutex_);
  Object Terminate(const Resource& resource, const Object& object, int64_t grace, bool foreground)
      REQUIRES_LOCK(mutex_);
  static std::string Collection(const Resource& resource);
  // The finalizer of a deletion in the foreground.
  static constexpr char kForeground[] = "foregroundDeletion";
  // Whether the object is going and nothing holds it any more.
  static bool MayGo(const Resource& resource, const Json& object);
  // Takes the finalizer from objects whose deletion in the foreground waits for no dependent any more.
  int EndForeground() REQUIRES_LOCK(mutex_);
  void Orphan(const std::string& uid) REQUIRES_LOCK(mutex_);
  // Commits `after` with its new resourceVersion under the name in it, and returns it.
  Object Store(const Resource& resource, Object before, Json after) REQUIRES_LOCK(mutex_);
  void Commit(const std::string& collection, const std::string& key, Object before, Object after) REQUIRES_LOCK(mutex_);
  void TrimHistory() REQUIRES_LOCK(mutex_);
  std::string NewUid() REQUIRES_LOCK(mutex_);

  const Clock& clock_;
  mutable Mutex mutex_;
  mutable CondVar changed_;
  std::mt19937_64 random_ GUARDED_BY(mutex_);
  uint64_t version_ GUARDED_BY(mutex_) = 1;
  uint64_t oldest_ GUARDED_BY(mutex_) = 1;  // changes after this one are in the history
  std::deque<Change> history_ GUARDED_BY(mutex_);
  size_t history_bytes_ GUARDED_BY(mutex_) = 0;
  Follower follower_ GUARDED_BY(mutex_);
  std::map<std::string, Objects> collections_ GUARDED_BY(mutex_);  // by "plural.group"
};

// Whether the pod's phase is Succeeded or Failed.
bool HasEnded(const Json& pod);

}  // namespace trainyard::local

#endif  // TRAINYARD_OPERATOR_LOCAL_API_MEMORY_API_H_
