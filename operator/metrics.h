// What the operator says about itself, in the Prometheus text format. No job name is a label.
#ifndef TRAINYARD_OPERATOR_METRICS_H_
#define TRAINYARD_OPERATOR_METRICS_H_

#include <string>
#include <vector>

#include "operator/kube/controller.h"
#include "operator/kube/reflector.h"
#include "operator/reconcile/observe.h"

namespace trainyard {

struct MetricSources {
  const reconcile::JobStore& jobs;
  const reconcile::PodStore& pods;
  const kube::WorkQueue& queue;
  const kube::ControllerCounters& controller;
  std::vector<const kube::Reflector*> reflectors;
  Time now;
};

std::string OperatorMetrics(const MetricSources& sources);

}  // namespace trainyard

#endif  // TRAINYARD_OPERATOR_METRICS_H_
