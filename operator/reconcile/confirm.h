// What the API itself is asked before anything follows from what a cache says, or lacks: a first list may be older than
// what an earlier process wrote.
#ifndef TRAINYARD_OPERATOR_RECONCILE_CONFIRM_H_
#define TRAINYARD_OPERATOR_RECONCILE_CONFIRM_H_

#include "operator/kube/client.h"
#include "operator/reconcile/plan.h"

namespace trainyard::reconcile {

// Each asks only where `observed` is such that something would follow. Ok: the caches are right; kConflict: they are
// old, and there is nothing to decide yet; any other: the API could not say.

// A pod was created for an attempt that had been written: one of a later attempt than the job's shows that our copy of
// the job is old, unless the API says otherwise.
Status ConfirmStale(kube::Client& client, const Observed& observed);

// A pod is gone only when the API says so. One that is there with other labels was taken out of its place, or out of
// the watch's sight, by someone: it is added to `unlabelled`.
Status ConfirmMissing(kube::Client& client, Observed& observed);

// A job is suspended when the API says that none of its pods is left: those that an earlier process made may be in no
// cache yet. One that is left and hidden is LeftWithoutLabel (problem.h).
Status ConfirmAtRest(kube::Client& client, const Observed& observed);

}  // namespace trainyard::reconcile

#endif  // TRAINYARD_OPERATOR_RECONCILE_CONFIRM_H_
