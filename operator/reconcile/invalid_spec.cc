#include <optional>

#include "operator/reconcile/conditions.h"
#include "operator/reconcile/policies.h"

namespace trainyard::reconcile {
namespace {

constexpr char kTemplateRefused[] = "TemplateRefused";
// How soon the API is asked again when it could not say whether the template is good.
constexpr double kAskAgainSeconds = 10;

void Say(const Observed& observed, Plan& plan, const char* type, const std::string& reason, const std::string& message,
         Time now) {
  const api::Condition* found = FindCondition(plan.status, type);
  const std::optional<api::Condition> before = found ? std::optional(*found) : std::nullopt;
  SetCondition(plan.status, type, type == std::string(kInvalidSpecCondition), reason, message, now,
               observed.job.generation);
  // What stands there may be shorter than what was to be said.
  const api::Condition& said = *FindCondition(plan.status, type);
  if (!before || before->reason != said.reason || before->message != said.message)
    plan.events.push_back({"Warning", reason, message});
}

// Of a job that is to go on, and rests all the same, Suspended says for what.
void SayNotResumed(const Observed& observed, Plan& plan, const std::string& reason, const std::string& message,
                   Time now) {
  if (IsTrue(plan.status, kSuspendedCondition) && !observed.job.spec.suspend)
    SetCondition(plan.status, kSuspendedCondition, true, reason, message, now, observed.job.generation);
}

}  // namespace

bool WasRefused(const TrainingJob& job) {
  const api::Condition* condition = FindCondition(job.status, kInvalidSpecCondition);
  return condition && condition->status == "True" && condition->reason == kTemplateRefused &&
         condition->observed_generation == job.generation;
}

bool IsBlocked(const Observed& observed) {
  return !observed.spec_errors.empty() || !observed.template_error.empty() || !observed.template_unknown.empty() ||
         (WasRefused(observed.job) && !observed.template_checked);
}

Plan JudgeSpec(const Observed& observed, Plan plan, Time now) {
  api::JobStatus& status = plan.status;
  if (!observed.spec_errors.empty()) {
    Say(observed, plan, kInvalidSpecCondition, "InvalidField", api::Join(observed.spec_errors), now);
  } else if (!observed.template_error.empty()) {
    Say(observed, plan, kInvalidSpecCondition, kTemplateRefused, "spec.template: " + observed.template_error, now);
  } else if (!observed.template_unknown.empty()) {
    status.observed_generation = observed.job.status.observed_generation;  // it is still to be asked for this one
    if (status.phase.empty()) status.phase = api::kPending;
    SayNotResumed(observed, plan, "TemplateNotChecked", observed.template_unknown, now);
    // Where workers exist, that condition is theirs.
    if (status.workers.created == 0)
      Say(observed, plan, kWorkersReadyCondition, "TemplateNotChecked", observed.template_unknown, now);
    plan.RequeueIn(kAskAgainSeconds);
    return plan;
  } else if (observed.template_checked || !WasRefused(observed.job)) {
    ClearCondition(status, kInvalidSpecCondition, "Valid", "", now, observed.job.generation);
    if (status.phase == api::kInvalid) status.phase = api::kPending;
    return plan;
  }
  SayNotResumed(observed, plan, kInvalidSpecCondition,
                "spec.suspend is false, and the spec is not one to go on with: InvalidSpec says why", now);
  // One that is suspended still is called that (suspend.cc).
  if (status.attempt == 0 || IsTrue(status, kSuspendedCondition)) status.phase = api::kInvalid;
  if (observed.spec_errors.empty()) plan.RequeueIn(kAskRefusedSeconds);
  return plan;
}

}  // namespace trainyard::reconcile
