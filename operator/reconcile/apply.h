// Carries out a plan: deletes, services, pods. No decision about the job is here.
#ifndef TRAINYARD_OPERATOR_RECONCILE_APPLY_H_
#define TRAINYARD_OPERATOR_RECONCILE_APPLY_H_

#include <array>
#include <atomic>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "operator/base/mutex.h"
#include "operator/kube/client.h"
#include "operator/reconcile/plan.h"
#include "operator/reconcile/pod_groups.h"
#include "operator/reconcile/services.h"

namespace trainyard::reconcile {

// How long a created pod may be missing in the cache before it is taken for gone, and a deleted one be shown in it
// before it is deleted again.
inline constexpr double kCacheLagSeconds = 10;

// How long the answer that an attempt is the newest counts.
inline constexpr double kConfirmedSeconds = 10;

// What came of a plan, for the status.
struct Outcome {
  bool held = false;          // the same problem as before, which is too young to be tried again: nothing was asked
  Problem problem;            // what was refused: pods that are not created, or do not go
  std::string master;         // where the workers find worker 0; empty: nobody asked, or it is not known
  bool master_moved = false;  // it is not where the attempt's pods look for it: none is created
  std::string group_news;     // what the gang's group says that it waits for; empty: nothing, or nobody asked
  IndexSet made;              // workers of the attempt whose pods this process has created or found
  std::optional<double> made_seconds_ago;  // the first of them; nothing: none was
  std::optional<double> slowest_pod;  // seconds that the creation of a pod took at most; nothing: none was asked for
  Status deleted;                     // what ended the deletions before all were asked for, if anything did
  std::optional<double> slowest_deletion;  // seconds that the deletion of a pod took at most; nothing: as above
  bool deletions_awaited = false;          // of pods that the cache still shows: they are asked for again later
  bool more = false;  // the turn was over before all was done: other jobs come first, then the rest
};

// Thread-safe for different jobs at once.
class Executor {
 public:
  // `parallel`: requests in flight while creating pods, >= 1; shared by all jobs, of which each may have four.
  Executor(kube::Client& client, const Clock& clock, int parallel)
      : client_(client), clock_(clock), parallel_(parallel), services_(client, clock), groups_(client, clock) {}

  // Does what it can and returns the first error, behind which nothing of its kind is begun; a repeated call does the
  // rest, as it does of what is beyond a turn: 500 pods to delete, or to create, of which none is begun after 5 s of
  // either, lest one job's thousands, or its slow ones, keep a worker from everyone's. Not found on delete and
  // already-existing-and-ours on create are success. Pods are created 1, 2, 4,
  // ... at a time, after an answer that confirms the attempt (kConflict when the API knows a newer one); it holds for
  // kConfirmedSeconds, also within a batch, so that an operator that was frozen, and may no longer lead, asks again.
  // What the server refuses (a quota, a missing right, a name in use) is no error but the outcome's problem. It is
  // tried again after a wait that doubles, and is the answer of every call for the same until then: nothing tells that
  // it is over.
  Status Apply(const TrainingJob& job, const Plan& plan, Outcome& outcome);
  // Says in `observed` which pods of the job's attempt were made, and which of them the cache has not shown yet.
  void Recall(Observed& observed);
  // The API's answer to a write of the job, asked for at `asked`: as good as a read, for a first attempt, before which
  // there was none.
  void Hear(const TrainingJob& job, const Json& written, Instant asked);
  // What is remembered of a job that is gone.
  void Forget(const std::string& key);

 private:
  // What a plan asks for, and in which attempt: a problem with one thing says nothing of another.
  using Topic = std::array<int64_t, 4>;
  static Topic TopicOf(const Plan& plan);
  struct Memory {
    std::string uid;
    int64_t confirmed_attempt = 0;
    Instant confirmed_at{};
    // Of that attempt: the workers whose pods were created, and those of them that no cache has shown.
    IndexSet made;
    std::optional<Instant> made_at;  // the first of them
    std::map<int64_t, Instant> coming;
    // By uid and whether by force, those that were asked for, of pods that the last plan still wanted to delete.
    std::map<std::pair<std::string, bool>, Instant> deletions;
    Topic topic{};  // of the last plan
    Problem problem;
    int problems = 0;  // in a row
    Instant retry_at{};
  };
  // Whether the plan's problem is too young to be tried again; `problem` is then it.
  bool IsHeld(const TrainingJob& job, const Plan& plan, Problem& problem);
  void Remember(const TrainingJob& job, Problem& problem);
  Status CarryOut(const TrainingJob& job, const Plan& plan, Outcome& outcome);
  // Those that were not asked for a moment ago.
  std::vector<PodDelete> NewDeletions(const TrainingJob& job, const Plan& plan, Outcome& outcome);
  Status DeletePods(const TrainingJob& job, const Plan& plan, Outcome& outcome);
  // Ok, too, where it is gone. `seconds`: how long the answer took.
  Status DeletePod(const TrainingJob& job, const PodDelete& pod, double& seconds);
  Status Relabel(const TrainingJob& job, const Plan& plan, Outcome& outcome);
  Status RelabelPod(const TrainingJob& job, const WorkerName& pod);
  bool IsConfirmed(const TrainingJob& job, const Plan& plan);
  Status ConfirmAttempt(const TrainingJob& job, const Plan& plan);
  Status ConfirmRest(const TrainingJob& job);
  void NoteConfirmed(const TrainingJob& job, int64_t attempt, Instant asked);
  Status ConfirmAlone(const TrainingJob& job, int64_t attempt);
  Status Create(const TrainingJob& job, const Plan& plan, Outcome& outcome);
  Status CreatePods(const TrainingJob& job, const Plan& plan, Outcome& outcome);
  // How many of the plan's pods may be on their way at once.
  int AtOnce(const TrainingJob& job, const Plan& plan) const;
  // All of `ranks`, or until something is in the way, or until `end`; `late`: those before which the attempt's
  // confirmation had become old.
  Status CreateBatch(const TrainingJob& job, const Plan& plan, const std::vector<int64_t>& ranks, Instant end,
                     std::vector<int64_t>& late, Outcome& outcome);
  Status CreatePod(const TrainingJob& job, int64_t attempt, int64_t rank, const std::string& master, Problem& problem);

  kube::Client& client_;
  const Clock& clock_;
  const int parallel_;
  std::atomic<int> creating_{0};  // jobs whose pods are being created, which share `parallel_`
  Services services_;
  PodGroups groups_;
  Mutex mutex_;
  std::map<std::string, Memory> memory_ GUARDED_BY(mutex_);  // by job key
};

}  // namespace trainyard::reconcile

#endif  // TRAINYARD_OPERATOR_RECONCILE_APPLY_H_
