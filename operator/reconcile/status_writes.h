// When a status that has changed is written. Pure.
#ifndef TRAINYARD_OPERATOR_RECONCILE_STATUS_WRITES_H_
#define TRAINYARD_OPERATOR_RECONCILE_STATUS_WRITES_H_

#include <optional>

#include "operator/api/training_job.h"

namespace trainyard::reconcile {

// Seconds until `after` is due in the place of `before`, the last of which was written so many seconds ago (nothing:
// not by us). While pods come, counts change with every one of them: those alone are written once a second, and less
// often, up to every ten seconds, the longer it takes. Whatever else has changed is due at once.
double WriteDelay(const api::JobStatus& before, const api::JobStatus& after, std::optional<double> seconds_ago,
                  Time now);

}  // namespace trainyard::reconcile

#endif  // TRAINYARD_OPERATOR_RECONCILE_STATUS_WRITES_H_
