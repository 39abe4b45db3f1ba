// One function for many things, several at a time.
#ifndef TRAINYARD_OPERATOR_RECONCILE_IN_PARALLEL_H_
#define TRAINYARD_OPERATOR_RECONCILE_IN_PARALLEL_H_

#include <cstddef>
#include <functional>

#include "operator/base/status.h"

namespace trainyard::reconcile {

// Runs f(0) ... f(count - 1), `parallel` (>= 1) at a time, or fewer where the machine has no more threads. Behind an
// error none is begun: it is the answer, when those that had begun have ended. An exception is kInternal.
Status InParallel(size_t count, int parallel, const std::function<Status(size_t)>& f);

}  // namespace trainyard::reconcile

#endif  // TRAINYARD_OPERATOR_RECONCILE_IN_PARALLEL_H_
