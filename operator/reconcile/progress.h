// When rank 0's answer is a reason to look at its job.
#ifndef TRAINYARD_OPERATOR_RECONCILE_PROGRESS_H_
#define TRAINYARD_OPERATOR_RECONCILE_PROGRESS_H_

#include "operator/reconcile/plan.h"

namespace trainyard::reconcile {

// Whether the status of a job, of which rank 0 answers `report`, would say something that it does not. An answer that
// says the same as the last one is news as well, once `progress_interval_seconds` are over: that it was heard is what
// silence and stalls are judged by. REQUIRES: the report is about the job and its newest attempt. Pure.
bool IsNews(const Report& report, const api::JobStatus& status, double progress_interval_seconds, Time now);

}  // namespace trainyard::reconcile

#endif  // TRAINYARD_OPERATOR_RECONCILE_PROGRESS_H_
