// What keeps a job from getting on, as a value: for the status, and tried again after a wait.
#ifndef TRAINYARD_OPERATOR_RECONCILE_PROBLEM_H_
#define TRAINYARD_OPERATOR_RECONCILE_PROBLEM_H_

#include <string>

#include "operator/api/training_job.h"
#include "operator/base/status.h"

namespace trainyard::reconcile {

// The reasons, beside "<kind>Refused" for each kind of what is created. RequestFailed: nobody answered, the server
// failed, or whatever else has no reason of its own.
inline constexpr char kNameInUse[] = "NameInUse", kForbidden[] = "Forbidden" /* also quotas */,
                      kThrottled[] = "Throttled", kGangUnavailable[] = "GangUnavailable",
                      kNoMasterAddress[] = "NoMasterAddress", kRequestFailed[] = "RequestFailed";

// Empty reason: there is none.
struct Problem {
  std::string reason;
  std::string message;
  double retry_seconds = 0;  // until it is tried again; 0: as soon as the queue says
  bool news = false;         // this process has not said so yet
};

// Whether `reason` is one of a problem. What a pod waits for has reasons of all kinds: ConnectionRefused is none.
bool IsProblem(const std::string& reason);

// A refusal (400, 403, 422, 429), which stands until someone changes something, becomes `problem`, with the name of the
// `kind` (Pod, Service or PodGroup) where it is the object that is refused. Any other status is the answer.
Status StayWith(const Status& status, const std::string& kind, Problem& problem);

// A pod of the job is there that the operator cannot see (IsShown), and whose end it waits for.
Status LeftWithoutLabel(const std::string& pod, const std::string& job);

// Whether someone has asked for the deletion of `object`.
bool IsGoing(const api::Json& object);

// The name of what we would create ("pod", "service") belongs to `object`, which is not ours, or is going.
Problem TakenBy(const std::string& what, const api::Json& object);

}  // namespace trainyard::reconcile

#endif  // TRAINYARD_OPERATOR_RECONCILE_PROBLEM_H_
