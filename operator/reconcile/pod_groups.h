// The PodGroups of a job with a gang (gang.h): one for each attempt, made before its pods.
#ifndef TRAINYARD_OPERATOR_RECONCILE_POD_GROUPS_H_
#define TRAINYARD_OPERATOR_RECONCILE_POD_GROUPS_H_

#include <optional>
#include <string>

#include "operator/kube/client.h"
#include "operator/reconcile/attempt_memory.h"
#include "operator/reconcile/problem.h"

namespace trainyard::reconcile {

// So long what a group says counts, and that it is there: nothing tells of a change.
inline constexpr double kGroupSeconds = 60;

// Thread-safe for different jobs at once.
class PodGroups {
 public:
  // Both must outlive it.
  PodGroups(kube::Client& client, const Clock& clock) : client_(client), clock_(clock) {}

  // Sees to it that the group of `attempt` is there, and those of others are gone; before the first of that `confirm`
  // says that it is the newest. `news`: what it waits for, by itself. A cluster that has no such kind is a `problem`.
  // REQUIRES: GangOf(job).
  Status Ensure(const api::TrainingJob& job, int64_t attempt, const ConfirmFunction& confirm, std::string& news,
                Problem& problem);
  // Deletes all groups of the job, once until the next Ensure; those that we may not look at go with the job.
  // REQUIRES: GangOf(job).
  Status Drop(const api::TrainingJob& job);
  void Forget(const std::string& key) { seen_.Forget(key); }

 private:
  // What was seen in an attempt; in attempt 0, that all groups are gone.
  struct Seen {
    std::string uid;
    int64_t attempt = 0;
    std::optional<Instant> at;
    std::string news;
  };
  // For the group of `attempt`, of which nothing was seen yet.
  Status MakeWay(const api::TrainingJob& job, int64_t attempt, const ConfirmFunction& confirm, Problem& problem);
  Status DropOthers(const api::TrainingJob& job, int64_t attempt);
  Status Obtain(const api::TrainingJob& job, const Seen& seen, api::Json& group, Problem& problem);
  Status Delete(const api::TrainingJob& job, const api::Json& group);

  kube::Client& client_;
  const Clock& clock_;
  AttemptMemory<Seen> seen_;
};

}  // namespace trainyard::reconcile

#endif  // TRAINYARD_OPERATOR_RECONCILE_POD_GROUPS_H_
