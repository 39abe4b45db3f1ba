// Why something of a job could not be created: for the status, and tried again after a wait.
#ifndef TRAINYARD_OPERATOR_RECONCILE_CREATE_PROBLEM_H_
#define TRAINYARD_OPERATOR_RECONCILE_CREATE_PROBLEM_H_

#include <string>

#include "operator/api/training_job.h"

namespace trainyard::reconcile {

inline constexpr char kNameInUse[] = "NameInUse";

// Empty reason: there is none.
struct CreateProblem {
  std::string reason;  // NameInUse, Forbidden (also quotas), Throttled or PodRefused
  std::string message;
  double retry_seconds = 0;  // until it is tried again
};

// Whether someone has asked for the deletion of `object`.
bool IsGoing(const api::Json& object);

// The name of what we would create ("pod", "service") belongs to `object`, which is not ours, or is going.
CreateProblem TakenBy(const std::string& what, const api::Json& object);

}  // namespace trainyard::reconcile

#endif  // TRAINYARD_OPERATOR_RECONCILE_CREATE_PROBLEM_H_
