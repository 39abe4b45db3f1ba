// What makes one group of all pods of an attempt, for whoever places them together or lets them in together: the
// PodGroup of each scheduler that has one, and what a pod says to belong to it, or to Kueue's group. Pure.
//
// Sources: k8s.io/api/scheduling/v1alpha2; volcano.sh/apis/pkg/apis/scheduling/v1beta1;
// sigs.k8s.io/scheduler-plugins/apis/scheduling/v1alpha1; kueue.sigs.k8s.io/docs/tasks/run/plain_pods.
#ifndef TRAINYARD_OPERATOR_RECONCILE_GANG_H_
#define TRAINYARD_OPERATOR_RECONCILE_GANG_H_

#include <cstdint>
#include <string>

#include "operator/api/training_job.h"
#include "operator/kube/client.h"

namespace trainyard::reconcile {

using api::Json;
using api::TrainingJob;

struct Gang {
  kube::Resource groups;
  const char* needs;  // what a cluster must have for it
};
// By spec.scheduling.gang; null: nobody's.
const Gang* GangOf(const TrainingJob& job);

// Of all workers of `attempt`. REQUIRES: GangOf(job).
Json PodGroup(const TrainingJob& job, int64_t attempt);
// What the group says that it waits for, in a line; empty: nothing.
std::string GroupNews(const Json& group);

// The queue of Kueue that lets the job in; empty: none does.
std::string QueueOf(const TrainingJob& job);

// Makes `pod` one of its attempt's group, and of spec.scheduling's priority class.
void JoinGang(const TrainingJob& job, int64_t attempt, Json& pod);

}  // namespace trainyard::reconcile

#endif  // TRAINYARD_OPERATOR_RECONCILE_GANG_H_
