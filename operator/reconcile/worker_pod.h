// The objects that the operator creates for a job. Pure.
#ifndef TRAINYARD_OPERATOR_RECONCILE_WORKER_POD_H_
#define TRAINYARD_OPERATOR_RECONCILE_WORKER_POD_H_

#include <cstdint>
#include <string>

#include "operator/api/training_job.h"

namespace trainyard::reconcile {

using api::Json;
using api::TrainingJob;

inline constexpr int64_t kStatusPort = 9460;
inline constexpr char kStatusPortName[] = "trainyard";  // of the container's port: what a PodMonitor selects

// What a worker's pod is found by, whatever the template says.
Json WorkerLabels(const TrainingJob& job, int64_t attempt, int64_t rank);

// Worker `rank` of `attempt`. `master`: where the others find worker 0, which has its own address.
// REQUIRES: api::Validate(job) found nothing.
Json WorkerPod(const TrainingJob& job, int64_t attempt, int64_t rank, const std::string& master);

// What an API server says of WorkerPod's `pod`, as it would of the job's template: the operator's variables stand
// before the template's, and an index counts them.
std::string OfTemplate(const TrainingJob& job, const Json& pod, std::string message);

// The headless service that gives workers their names.
Json HeadlessService(const TrainingJob& job);
// The service that is worker 0 of `attempt`. `address`: the ClusterIP that it should have; empty: any.
Json MasterService(const TrainingJob& job, int64_t attempt, const std::string& address);

// What makes an object the job's own: it goes with the job.
Json OwnerReference(const TrainingJob& job);

// Whether the job of this uid is the controller of `object`.
bool OwnedBy(const Json& object, const std::string& uid);

// "<job>-<attempt>-0.<job>.<namespace>.svc"
std::string MasterName(const TrainingJob& job, int64_t attempt);
// 20000 + hash(uid, attempt) mod 10000: outside the ephemeral range, new for every attempt.
int64_t MasterPort(const std::string& uid, int64_t attempt);

// Of what makes the pods: the parts of the spec, and the queue in the job's labels, which may change at any time.
std::string SpecHash(const TrainingJob& job);
// Of where the spec says that checkpoints lie: the volume, where it is mounted, and the folders that the trainer's
// configuration names.
std::string CheckpointHash(const TrainingJob& job);

}  // namespace trainyard::reconcile

#endif  // TRAINYARD_OPERATOR_RECONCILE_WORKER_POD_H_
