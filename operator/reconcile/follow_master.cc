#include "operator/reconcile/follow_master.h"

#include "operator/api/labels.h"
#include "operator/reconcile/conditions.h"
#include "operator/reconcile/policies.h"

namespace trainyard::reconcile {

void FollowMaster(const Observed& observed, const std::string& master, Plan& plan, Time now) {
  const api::JobStatus& status = plan.status;
  const std::string message = "service " + api::MasterServiceName(observed.job.name) +
                              " came back with another address, " + master + ", and pods of attempt " +
                              std::to_string(status.attempt) + " look for worker 0 at " + status.master.address +
                              ": another attempt begins";
  NextAttempt(observed, plan, now);
  plan.status.phase = api::kPending;
  SetCondition(plan.status, kWorkersReadyCondition, false, "MasterAddressChanged", message, now,
               observed.job.generation);
  plan.events.push_back({"Warning", "MasterAddressChanged", message});
}

}  // namespace trainyard::reconcile
