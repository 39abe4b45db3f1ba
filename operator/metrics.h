// What /metrics says, in the Prometheus text format; docs/metrics.md lists it. No job's name is in it.
#ifndef TRAINYARD_OPERATOR_METRICS_H_
#define TRAINYARD_OPERATOR_METRICS_H_

#include <string>

#include "operator/kube/controller.h"
#include "operator/kube/request_metrics.h"
#include "operator/kube/token_bucket.h"
#include "operator/reconcile/caches.h"
#include "operator/reconcile/job_metrics.h"

namespace trainyard {

// What the metrics are of. All must outlive the call.
struct MeteredOperator {
  const reconcile::Caches& caches;
  const kube::WorkQueue& queue;
  const kube::Controller& controller;
  const reconcile::JobMetrics& jobs;
};

// Thread-safe.
std::string OperatorMetrics(const MeteredOperator& parts, const Clock& clock);
// What the client of `run` says of itself. Thread-safe.
std::string ClientMetrics(const kube::TokenBucket& bucket, const kube::RequestMetrics& requests, bool leads);

}  // namespace trainyard

#endif  // TRAINYARD_OPERATOR_METRICS_H_
