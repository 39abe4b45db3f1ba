// When a status that has changed is written. Pure.
#ifndef TRAINYARD_OPERATOR_RECONCILE_STATUS_WRITES_H_
#define TRAINYARD_OPERATOR_RECONCILE_STATUS_WRITES_H_

#include <optional>

#include "operator/api/training_job.h"

namespace trainyard::reconcile {

// How long ago, in seconds, something was done by this process; nothing: it was not.
struct Since {
  std::optional<double> written;  // the job's status
  std::optional<double> made;     // the first pod of the attempt
};

// Seconds until `after` is due in the place of `before`. While pods come, counts change with every one of them: those
// alone are written once a second, and less often, up to every ten seconds, the longer it takes. That pods of an
// attempt were created has five seconds from the first of them and from the write before, in which one write may say
// that all were, and that they run as well: no longer, for until then nobody else knows what was created, nor the
// address that the pods were told. While more are being created it is ten behind the write before when it takes long.
// Whatever else has changed is due at once.
double WriteDelay(const api::JobStatus& before, const api::JobStatus& after, const Since& since, Time now);

}  // namespace trainyard::reconcile

#endif  // TRAINYARD_OPERATOR_RECONCILE_STATUS_WRITES_H_
