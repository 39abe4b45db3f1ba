// An object of the job's own that has to be there: made if it is not.
#ifndef TRAINYARD_OPERATOR_RECONCILE_OBTAIN_H_
#define TRAINYARD_OPERATOR_RECONCILE_OBTAIN_H_

#include "operator/kube/client.h"
#include "operator/reconcile/problem.h"

namespace trainyard::reconcile {

// `object` as it is, if it is the job's own. `wanted`: as it is made; `expected`: it is probably there. A `problem`:
// the name is someone else's, which leaves `object` alone; or it is the job's own, and going.
Status Obtain(kube::Client& client, const kube::Resource& resource, const api::TrainingJob& job,
              const api::Json& wanted, bool expected, api::Json& object, Problem& problem);

}  // namespace trainyard::reconcile

#endif  // TRAINYARD_OPERATOR_RECONCILE_OBTAIN_H_
