// Carries out a plan: deletes, services, pods. No decision about the job is here.
#ifndef TRAINYARD_OPERATOR_RECONCILE_APPLY_H_
#define TRAINYARD_OPERATOR_RECONCILE_APPLY_H_

#include <map>
#include <optional>
#include <string>

#include "operator/base/mutex.h"
#include "operator/kube/client.h"
#include "operator/reconcile/plan.h"
#include "operator/reconcile/services.h"

namespace trainyard::reconcile {

// How long a created pod may be missing in the cache before it is taken for gone.
inline constexpr double kCacheLagSeconds = 10;

// How long the answer that an attempt is the newest counts.
inline constexpr double kConfirmedSeconds = 10;

// What came of a plan, for the status.
struct Outcome {
  CreateProblem problem;  // why some pods were not created
  std::string master;     // where the workers find worker 0; empty: nobody asked, or it is not known
  IndexSet made;          // workers of the attempt whose pods this process has created or found
};

// Thread-safe for different jobs at once.
class Executor {
 public:
  // `parallel`: requests in flight while creating pods, >= 1.
  Executor(kube::Client& client, const Clock& clock, int parallel)
      : client_(client), clock_(clock), parallel_(parallel), services_(client, clock) {}

  // Does everything it can and returns the first error; a repeated call does the rest. Not found on
  // delete and already-existing-and-ours on create are success. Pods are created 1, 2, 4, ... at a time,
  // after a read that confirms the attempt (kConflict when the API knows a newer one); it holds for
  // kConfirmedSeconds, also within a batch, so that an operator that was frozen, and may no longer lead, asks again.
  // What keeps pods from being created (a quota, a name in use) is tried again after a wait that doubles, and is the
  // answer of every call until then: nothing tells that it is over.
  Status Apply(const TrainingJob& job, const Plan& plan, Outcome& outcome);
  // Workers of the job's attempt whose pods were created a moment ago, and which no cache has shown yet: `shown` are
  // those that it has.
  IndexSet Coming(const TrainingJob& job, const IndexSet& shown);
  // What is remembered of a job that is gone.
  void Forget(const std::string& key);

 private:
  struct Memory {
    std::string uid;
    int64_t confirmed_attempt = 0;
    Instant confirmed_at{};
    // Of that attempt: the workers whose pods were created, and those of them that no cache has shown.
    IndexSet made;
    std::map<int64_t, Instant> coming;
    CreateProblem problem;
    int problems = 0;  // in a row
    Instant retry_at{};
  };
  Status DeletePods(const TrainingJob& job, const Plan& plan);
  Status Relabel(const TrainingJob& job, const Plan& plan);
  bool IsConfirmed(const TrainingJob& job, const Plan& plan);
  Status ConfirmAttempt(const TrainingJob& job, const Plan& plan);
  Status ConfirmAlone(const TrainingJob& job, int64_t attempt);
  Status Create(const TrainingJob& job, const Plan& plan, Outcome& outcome);
  bool IsHeld(const TrainingJob& job, CreateProblem& problem);
  void Remember(const TrainingJob& job, CreateProblem& problem);
  Status CreatePods(const TrainingJob& job, const Plan& plan, Outcome& outcome);
  Status CreatePod(const TrainingJob& job, int64_t rank, const Json& pod, CreateProblem& problem);

  kube::Client& client_;
  const Clock& clock_;
  const int parallel_;
  Services services_;
  Mutex mutex_;
  std::map<std::string, Memory> memory_ GUARDED_BY(mutex_);  // by job key
};

}  // namespace trainyard::reconcile

#endif  // TRAINYARD_OPERATOR_RECONCILE_APPLY_H_
