// What /metrics says, in the Prometheus text format. No job's name is on a counter.
#ifndef TRAINYARD_OPERATOR_METRICS_H_
#define TRAINYARD_OPERATOR_METRICS_H_

#include <string>

#include "operator/kube/controller.h"
#include "operator/kube/token_bucket.h"
#include "operator/reconcile/caches.h"

namespace trainyard {

// Thread-safe.
std::string OperatorMetrics(const reconcile::Caches& caches, const kube::WorkQueue& queue,
                            const kube::ControllerCounters& controller, Instant now);
// What the client of `run` says of itself. Thread-safe.
std::string ClientMetrics(const kube::TokenBucket& bucket, bool leads);

}  // namespace trainyard

#endif  // TRAINYARD_OPERATOR_METRICS_H_
