// Whose end explains a failed attempt, and what it said. docs/architecture.md, "Exit codes".
#ifndef TRAINYARD_OPERATOR_RECONCILE_CULPRIT_H_
#define TRAINYARD_OPERATOR_RECONCILE_CULPRIT_H_

#include <optional>
#include <string>
#include <vector>

#include "operator/reconcile/plan.h"

namespace trainyard::reconcile {

// A worker that did not succeed.
struct FailedWorker {
  int64_t worker = 0;      // its index
  Pod pod;                 // null: it is gone; then the failure is what the status has kept, or that it vanished
  bool disrupted = false;  // by the DisruptionTarget condition, a deletion that was not ours, or because it vanished;
                           // not one that had ended before with a permanent code
  api::Failure failure;
};

// Whether a pod that has ended did not succeed: also one that ended with 0 after it was disrupted or told to go, as a
// script does that saves and exits in good order on SIGTERM. REQUIRES: pod.end.
bool IsFailure(const PodRecord& pod);

// Every worker of the attempt that failed, also one whose pod does not go although it was deleted. One that is missing
// counts as vanished: whoever observes makes sure that the API does not have its pod either.
std::vector<FailedWorker> FailedWorkers(const Observed& observed, Time now);

// Those, and the workers whose pods someone else is deleting: they need not have ended to be why the others did. An
// attempt does not end because of them alone.
std::vector<FailedWorker> Suspects(const Observed& observed, std::vector<FailedWorker> failed, Time now);

// The cause: DisruptionTarget > permanent codes > 73 > 71 and OOMKilled > a pod that vanished or was deleted by force >
// 70, 74, any unlisted code, a signal, and a pod that someone deleted > 75 > 69; then the earliest, then the lowest
// worker. A permanent code that was there before the first disruption goes before it. A pod that was deleted by force
// ranks so whatever it ended with, also with a permanent code, while a finalizer holds it: the time of the deletion
// before that, and so whether it was told to end, is lost. In a foreign program the victims of a lost peer end
// like the cause, which is why the earliest counts.
// Permanent are the codes that a Fail rule of `rules` names. REQUIRES: workers is not empty.
const FailedWorker& Culprit(const std::vector<FailedWorker>& workers, const std::vector<api::RestartRule>& rules);

// The highest step that a termination message of the attempt calls durable; of a suspended job, also one of the pods
// that the suspension ends.
std::optional<int64_t> DurableStep(const Observed& observed);

}  // namespace trainyard::reconcile

#endif  // TRAINYARD_OPERATOR_RECONCILE_CULPRIT_H_
