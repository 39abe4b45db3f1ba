#include "operator/reconcile/conditions.h"
#include "operator/reconcile/policies.h"

namespace trainyard::reconcile {
namespace {

constexpr char kTemplateRefused[] = "TemplateRefused";

// The dry run is made once per generation; its verdict stands until the next.
bool WasRefused(const TrainingJob& job) {
  const api::Condition* condition = FindCondition(job.status, kInvalidSpecCondition);
  return condition && condition->status == "True" && condition->reason == kTemplateRefused &&
         condition->observed_generation == job.generation;
}

std::string Reason(const Observed& observed) {
  for (const api::FieldError& error : observed.spec_errors) {
    if (error.kind != api::FieldError::Kind::kNotYetSupported) return "InvalidField";
  }
  return "NotYetSupported";
}

}  // namespace

bool IsInvalid(const Observed& observed) {
  return !observed.spec_errors.empty() || !observed.template_error.empty() || WasRefused(observed.job);
}

Plan ReportInvalid(const Observed& observed, Plan plan, Time now) {
  api::JobStatus& status = plan.status;
  // An attempt that runs goes on; there is just nothing new while the spec is wrong.
  if (status.attempt == 0) status.phase = api::kInvalid;
  std::string reason, message;
  if (!observed.spec_errors.empty()) {
    reason = Reason(observed);
    message = api::Join(observed.spec_errors);
  } else if (!observed.template_error.empty()) {
    reason = kTemplateRefused;
    message = "spec.template: " + observed.template_error;
  } else {
    return plan;  // Said before, for this very generation.
  }
  const api::Condition* before = FindCondition(status, kInvalidSpecCondition);
  const bool news = !before || before->status != "True" || before->message != message;
  SetCondition(status, kInvalidSpecCondition, true, reason, message, now, observed.job.generation);
  if (news) plan.events.push_back({"Warning", reason, message});
  return plan;
}

}  // namespace trainyard::reconcile
