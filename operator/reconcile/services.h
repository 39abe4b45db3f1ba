// The services that a job's workers meet through: a headless one of the job's name, which gives them names, and
// <job>-master, whose address is worker 0 of the attempt: it stands in the environment of the others from their
// creation, it stays the same whatever becomes of worker 0's pod, and needs no DNS.
#ifndef TRAINYARD_OPERATOR_RECONCILE_SERVICES_H_
#define TRAINYARD_OPERATOR_RECONCILE_SERVICES_H_

#include <map>
#include <optional>
#include <string>

#include "operator/base/mutex.h"
#include "operator/kube/client.h"
#include "operator/reconcile/create_problem.h"
#include "operator/reconcile/plan.h"

namespace trainyard::reconcile {

// Thread-safe for different jobs at once.
class Services {
 public:
  // Both must outlive it.
  Services(kube::Client& client, const Clock& clock) : client_(client), clock_(clock) {}

  // Sees to it that they are there and stand for `attempt`, which is the newest, and gives the address of worker 0
  // for the others. A problem leaves `master` empty. kConflict when someone else has changed one in between.
  Status Ensure(const TrainingJob& job, int64_t attempt, std::string& master, CreateProblem& problem);
  void Forget(const std::string& key);

 private:
  // What was seen in an attempt: at its beginning both are looked at anew.
  struct Seen {
    std::string uid;
    int64_t attempt = 0;
    std::optional<Instant> names_at, master_at;
    std::string address;
  };
  Seen Recall(const TrainingJob& job, int64_t attempt);
  void Remember(const TrainingJob& job, const Seen& seen);
  bool IsFresh(const std::optional<Instant>& seen_at) const;
  Status EnsureNames(const TrainingJob& job, Seen& seen, CreateProblem& problem);
  Status EnsureMaster(const TrainingJob& job, Seen& seen, CreateProblem& problem);
  // The service as it is, made if it is not there. `expected`: it probably is.
  Status Obtain(const TrainingJob& job, const Json& wanted, bool expected, Json& service, CreateProblem& problem);

  kube::Client& client_;
  const Clock& clock_;
  Mutex mutex_;
  std::map<std::string, Seen> seen_ GUARDED_BY(mutex_);  // by job key
};

}  // namespace trainyard::reconcile

#endif  // TRAINYARD_OPERATOR_RECONCILE_SERVICES_H_
