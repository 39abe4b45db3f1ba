// What becomes of an attempt whose workers would look for worker 0 at two places. No policy of MakePlan's: that it is
// so shows when the plan is carried out.
#ifndef TRAINYARD_OPERATOR_RECONCILE_FOLLOW_MASTER_H_
#define TRAINYARD_OPERATOR_RECONCILE_FOLLOW_MASTER_H_

#include <string>

#include "operator/reconcile/plan.h"

namespace trainyard::reconcile {

// Another attempt, whose pods all look for worker 0 at `master`. No restart: nothing failed.
void FollowMaster(const Observed& observed, const std::string& master, Plan& plan, Time now);

}  // namespace trainyard::reconcile

#endif  // TRAINYARD_OPERATOR_RECONCILE_FOLLOW_MASTER_H_
