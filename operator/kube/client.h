// The Kubernetes API as the operator uses it: one seam, with a client over HTTPS (rest_client.h) and
// one that calls the in-memory API directly (local/api/memory_client.h).
//
// Sources: kubernetes.io/docs/reference/using-api/api-concepts; RFC 7386 for merge patches.
#ifndef TRAINYARD_OPERATOR_KUBE_CLIENT_H_
#define TRAINYARD_OPERATOR_KUBE_CLIENT_H_

#include <functional>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "operator/base/status.h"
#include "operator/base/stop_flag.h"

namespace trainyard::kube {

using Json = nlohmann::json;

// Under this name the API server remembers which fields this program set.
inline constexpr char kFieldManager[] = "trainyard-operator";

// A kind of object, and where it lives.
struct Resource {
  std::string group;  // empty: the core group
  std::string version;
  std::string plural;
  std::string kind;

  std::string ApiVersion() const { return group.empty() ? version : group + "/" + version; }
  // "/apis/trainyard.dev/v1alpha1/namespaces/default/trainingjobs"; an empty namespace: all of them.
  std::string Path(const std::string& ns) const;
  friend bool operator==(const Resource&, const Resource&) = default;
};

extern const Resource kPods, kServices, kClaims, kEvents, kLeases, kTrainingJobs;
// kube-scheduler's, Volcano's and the coscheduling plugin's.
extern const Resource kPodGroups, kVolcanoPodGroups, kCoschedulingPodGroups;

// The fields that the caller reads, as the keys that lead there from the object, whatever lists lie between, with all
// that they hold: "spec.containers.name". Of what a path goes through (here "spec" and each container) other fields may
// lack; a field of the object that none goes through ("status", with this one alone) is there, as are numbers and texts
// where a list or an object would be. With a text behind it, as in "spec.containers.env=NAME", a list of which the
// caller reads what holds "NAME". None: everything. The API's keys are plain: one that is written with escapes is none.
using FieldPaths = std::vector<std::string>;

struct ListOptions {
  std::string label_selector, field_selector;
  std::string resource_version;  // not older than it; "0": any, from the server's cache; empty: the newest
  int64_t limit = 0;
  std::string continue_token;
  bool metadata_only = false;  // of each object its metadata is enough: the rest may lack
  FieldPaths fields = {};
};

// What a list says besides its objects.
struct ListEnd {
  std::string resource_version;
  std::string continue_token;  // of the next page; empty: this was the last
};

struct WatchOptions {
  std::string label_selector;
  std::string resource_version;
  int timeout_seconds = 0;  // the server ends the stream after so long
  // Before the changes comes all there is, not older than resource_version, as ADDED, and then a BOOKMARK with
  // kInitialEventsEnd. A server that does not offer it refuses (kInvalid).
  bool initial_events = false;
  // Called once, before the first event, when the server has accepted the watch.
  std::function<void()> accepted = {};
  // Called once, on the same thread, if nothing comes within silent_seconds of that; what comes meanwhile waits, and so
  // does `stop`. A failure ends the watch with it.
  std::function<Status()> silent = {};
  double silent_seconds = 0;
  FieldPaths fields = {};
};

// The annotation, "true", of the bookmark behind the last initial event.
inline constexpr char kInitialEventsEnd[] = "k8s.io/initial-events-end";

struct WriteOptions {
  bool dry_run = false;
  bool strict = false;     // refuse unknown and duplicate fields, instead of dropping them
  bool answer = true;      // false: the object as stored is of no interest; any other may come, or null
  FieldPaths fields = {};  // of that object
};

struct DeleteOptions {
  std::string uid;  // only this very object; empty: whatever has the name
  std::optional<int64_t> grace_seconds;
  std::string resource_version = {};  // only as it was then; empty: however it has changed
};

// type: ADDED, MODIFIED, DELETED, BOOKMARK or ERROR (then `object` is a metav1.Status).
struct WatchEvent {
  std::string type;
  Json object;
};

using trainyard::StopFlag;

// Thread-safe. Every call has a deadline of its own.
class Client {
 public:
  virtual ~Client() = default;

  // The object; kNotFound when there is none. Of it `fields` are read.
  virtual Result<Json> Get(const Resource& resource, const std::string& ns, const std::string& name,
                           const FieldPaths& fields = {}) = 0;
  // Calls `on_item` with each object as it comes: the whole of a list is never held. kGone when the resource version
  // or the continue token is too old. On an error there may have been objects; they are then part of no list.
  virtual Result<ListEnd> List(const Resource& resource, const std::string& ns, const ListOptions& options,
                               const std::function<void(const Json&)>& on_item) = 0;
  // The object as stored; kAlreadyExists when the name is taken.
  virtual Result<Json> Create(const Resource& resource, const std::string& ns, const Json& object,
                              const WriteOptions& options) = 0;
  // Merge patch. kConflict when `patch` carries a metadata.resourceVersion that is not the newest.
  // `subresource`: "status", or empty.
  virtual Result<Json> MergePatch(const Resource& resource, const std::string& ns, const std::string& name,
                                  const std::string& subresource, const Json& patch, const WriteOptions& options) = 0;
  // kNotFound when it is gone; kConflict when its uid or resource version is another.
  virtual Status Delete(const Resource& resource, const std::string& ns, const std::string& name,
                        const DeleteOptions& options) = 0;
  // Calls `on_event` for each event until the stream ends (ok), fails, or `stop` is set by another thread (ok,
  // within a second). `on_event` returns false to end it.
  virtual Status Watch(const Resource& resource, const std::string& ns, const WatchOptions& options,
                       const std::function<bool(WatchEvent)>& on_event, const StopFlag& stop) = 0;
};

// The Status that a metav1.Status object stands for; `http` is the response's code.
Status StatusFromApi(int http, const Json& body);

}  // namespace trainyard::kube

#endif  // TRAINYARD_OPERATOR_KUBE_CLIENT_H_
