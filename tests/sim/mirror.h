// What the API holds at any moment, followed change by change and without a request: the truth that invariants
// and the oracle judge by, and what the cluster's own components look at. Knows nothing of the operator's code.
#ifndef TRAINYARD_TESTS_SIM_MIRROR_H_
#define TRAINYARD_TESTS_SIM_MIRROR_H_

#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "operator/local/api/memory_api.h"
#include "tests/sim/dice.h"

namespace trainyard::sim {

using kube::Json;

// Of every job of a simulation.
inline constexpr char kNamespace[] = "default";

// How the trainer's container ended.
// Of a pod that failed as a whole: no container tells of it, and no rule names it.
inline constexpr int64_t kNoCode = -1;

struct ContainerEnd {
  int64_t code = 0;
  std::string reason;                            // the kubelet's
  std::optional<Time> time;                      // nothing: the pod failed as a whole
  bool said = false;                             // it left a launcher's message
  std::string said_reason;                       // in that message
  std::optional<int64_t> step, checkpoint_step;  // in that message, if it knew
};

struct PodView {
  std::string name, uid, job_name, job_uid, owner_uid, node, phase;
  int64_t attempt = 0, rank = 0;  // as labelled
  int64_t fence_attempt = 0;      // what the process calls itself by: TRAINYARD_ATTEMPT
  int64_t workers = 0;            // PET_NNODES
  bool deleting = false, disrupted = false, sidecar = false;
  std::optional<Time> disrupted_at, deleted_at;  // deleted_at: when somebody asked for it; of a forced one nobody knows
  std::optional<Time> created, gone_by;          // gone_by: when its grace is over
  bool scheduled = false, ready = false;
  std::set<std::string> avoids;  // nodes that its affinity excludes
  std::optional<ContainerEnd> end;

  bool over() const { return phase == "Succeeded" || phase == "Failed"; }
  bool forced() const { return deleting && !deleted_at; }  // without grace
  // Gone but for a finalizer.
  bool spent() const { return deleting && (over() || forced()); }
};

// What a job's own rule says of an exit code.
struct ExitRule {
  int64_t code = 0;
  bool fail = false, free = false;
};

struct Streak {
  std::string reason;
  std::optional<int64_t> step;
  int64_t count = 0;
};

struct JobView {
  std::string name, uid, phase;
  bool suspend = false;
  int64_t workers = 0, max_restarts = 0, same_step_limit = 0, backoff_initial = 0, backoff_max = 0;
  std::string made_from;        // what of the spec its pods are made from, as text
  std::vector<ExitRule> rules;  // the job's own, on exit codes
  std::string clean_pod_policy;
  std::optional<int64_t> schedule_seconds, active_seconds, ttl_seconds;
  int64_t start_seconds = 0, stall_seconds = 0, terminate_seconds = 0;
  bool rank_zero = false;  // successPolicy
  // status
  int64_t attempt = 0, total = 0, charged = 0, durable_step = 0, checkpoint_step = 0;
  int64_t created = 0;     // status.workers.created
  std::set<int64_t> done;  // status.workers.done
  std::optional<Streak> streak;
  bool suspended = false, succeeded = false, failed = false;
  std::optional<Time> start_time, completion_time, suspended_changed;  // suspended_changed: the condition's transition
  std::string failed_reason;
  std::string culprit_pod, culprit_reason;  // of the newest failure, and
  int64_t culprit_attempt = 0;              // its attempt
  std::optional<Time> culprit_time;
  std::optional<int64_t> culprit_code, culprit_step;
  std::optional<Time> created_at;  // the job itself
  std::optional<Time> as_of;       // status.goodput: until when its seconds speak,
  int64_t trained = 0, lost = 0;   // those of training, and of all causes together
  std::map<std::string, int64_t> lost_to;

  bool finished() const { return succeeded || failed; }
};

// Null: not there before, or gone after.
using PodListener = std::function<void(const PodView* before, const PodView* after)>;
using JobListener = std::function<void(const JobView* before, const JobView* after)>;

class Mirror {
 public:
  // Follows every change of `api`, which must outlive it, from now on.
  explicit Mirror(local::MemoryApi& api);
  ~Mirror() { api_.FollowChanges(nullptr); }

  const std::map<std::string, PodView>& pods() const { return pods_; }  // by uid
  const std::map<std::string, JobView>& jobs() const { return jobs_; }  // by uid
  const JobView* JobNamed(const std::string& name) const;
  uint64_t version() const { return version_; }

  // Called under the API's lock: listeners call nothing of it.
  void Listen(PodListener pod) { pod_listeners_.push_back(std::move(pod)); }
  void Listen(JobListener job) { job_listeners_.push_back(std::move(job)); }

  // Keeps what there is now, as a cache of an API server may.
  void KeepLists();
  // A list of `resource` that was kept, or nothing when none is as new as `version`.
  std::optional<Json> OldList(const kube::Resource& resource, const std::string& label_selector, uint64_t version,
                              Dice& dice) const;

 private:
  using Objects = std::map<std::string, std::shared_ptr<const Json>>;  // by key
  struct Kept {
    uint64_t version = 0;
    std::map<std::string, Objects> collections;
  };
  void Changed(uint64_t version, const std::string& collection, const std::string& key, const Json* object);
  void PodChanged(const Json* before, const Json* after);
  void JobChanged(const Json* before, const Json* after);

  local::MemoryApi& api_;
  uint64_t version_ = 0;
  std::map<std::string, Objects> now_;  // by collection
  std::deque<Kept> kept_;
  std::map<std::string, PodView> pods_;
  std::map<std::string, JobView> jobs_;
  std::vector<PodListener> pod_listeners_;
  std::vector<JobListener> job_listeners_;
};

}  // namespace trainyard::sim

#endif  // TRAINYARD_TESTS_SIM_MIRROR_H_
