// The services that a job's workers meet through: a headless one of the job's name, which gives them names, and
// <job>-master, whose address is worker 0 of the attempt: it stands in the environment of the others from their
// creation, it stays the same whatever becomes of worker 0's pod, and needs no DNS.
#ifndef TRAINYARD_OPERATOR_RECONCILE_SERVICES_H_
#define TRAINYARD_OPERATOR_RECONCILE_SERVICES_H_

#include <optional>
#include <string>

#include "operator/kube/client.h"
#include "operator/reconcile/attempt_memory.h"
#include "operator/reconcile/plan.h"
#include "operator/reconcile/problem.h"

namespace trainyard::reconcile {

// Thread-safe for different jobs at once.
class Services {
 public:
  // Both must outlive it.
  Services(kube::Client& client, const Clock& clock) : client_(client), clock_(clock) {}

  // Sees to it that they are there and stand for `attempt`, and gives the address of worker 0 for the others. A problem
  // leaves `master` empty. kConflict when someone else has changed one in between. One that stands for another attempt
  // is turned only when `confirm` says that this one is the newest.
  Status Ensure(const TrainingJob& job, int64_t attempt, const ConfirmFunction& confirm, std::string& master,
                Problem& problem);
  // Deletes <job>-master, once until the next Ensure. One that this process has not seen is deleted only when `confirm`
  // says that the job still has no use for it; one that we may not delete goes with the job.
  Status DropMaster(const TrainingJob& job, const ConfirmFunction& confirm);
  void Forget(const std::string& key);

 private:
  // What is known of <job>-master in all attempts, which is kept as that of attempt 0.
  struct Master {
    std::string uid;
    int64_t attempt = 0;
    std::string service_uid;  // empty: not known
    bool gone = false;
  };
  // What was seen in an attempt: at its beginning both are looked at anew.
  struct Seen {
    std::string uid;
    int64_t attempt = 0;
    std::optional<Instant> names_at, master_at;
    std::string address;
  };
  bool IsFresh(const std::optional<Instant>& seen_at) const;
  Status EnsureNames(const TrainingJob& job, Seen& seen, Problem& problem);
  Status EnsureMaster(const TrainingJob& job, const ConfirmFunction& confirm, Seen& seen, Problem& problem);
  // As EnsureMaster needs it, whatever it stands for.
  Status ObtainMaster(const TrainingJob& job, const Seen& seen, const Json& wanted, Json& service, Problem& problem);
  // The uid of the job's own, empty when there is none.
  Result<std::string> FindMaster(const TrainingJob& job, const ConfirmFunction& confirm);

  kube::Client& client_;
  const Clock& clock_;
  AttemptMemory<Seen> seen_;
  AttemptMemory<Master> masters_;
};

}  // namespace trainyard::reconcile

#endif  // TRAINYARD_OPERATOR_RECONCILE_SERVICES_H_
