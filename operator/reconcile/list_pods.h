// A job's pods as the API itself has them, where a cache may be old.
#ifndef TRAINYARD_OPERATOR_RECONCILE_LIST_PODS_H_
#define TRAINYARD_OPERATOR_RECONCILE_LIST_PODS_H_

#include <functional>
#include <string>

#include "operator/api/training_job.h"
#include "operator/kube/client.h"

namespace trainyard::reconcile {

struct PodQuestion {
  std::string labels;          // that they match besides the job's own; empty: all of the job
  bool metadata_only = false;  // the rest of each may lack
};

// Whether the watch of pods shows the pod as one of the job's: it is found there by its labels, which anyone may
// change.
bool IsShown(const api::TrainingJob& job, const api::Json& pod);

// Calls `on_pod` with each pod that the job owns. In one piece: what is asked for is few pods, or little of each.
Status ListPods(kube::Client& client, const api::TrainingJob& job, const PodQuestion& question,
                const std::function<void(const api::Json& pod)>& on_pod);

}  // namespace trainyard::reconcile

#endif  // TRAINYARD_OPERATOR_RECONCILE_LIST_PODS_H_
