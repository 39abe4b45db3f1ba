// Labels, annotations and names that the operator puts on what it creates.
#ifndef TRAINYARD_OPERATOR_API_LABELS_H_
#define TRAINYARD_OPERATOR_API_LABELS_H_

#include <cstdint>
#include <string>

namespace trainyard::api {

inline constexpr char kLabelManaged[] = "trainyard.dev/managed";  // "true" on every pod of ours: what the watch selects
inline constexpr char kLabelJobName[] = "trainyard.dev/job-name";
inline constexpr char kLabelJobUid[] = "trainyard.dev/job-uid";
inline constexpr char kLabelAttempt[] = "trainyard.dev/attempt";
inline constexpr char kLabelRank[] = "trainyard.dev/rank";  // the worker's index, which is the node rank

inline constexpr char kAnnotationConfig[] = "trainyard.dev/config";  // spec.config as JSON; behind TRAINYARD_CONFIG

// Volumes of a worker's pod that the template may mount in other containers.
inline constexpr char kInfoVolume[] = "trainyard-info";               // with spec.config
inline constexpr char kCheckpointVolume[] = "trainyard-checkpoints";  // with spec.checkpoint.volume
inline constexpr char kSharedMemoryVolume[] = "trainyard-shm";

// Kueue's, of its plain pods. Source: kueue.sigs.k8s.io/docs/tasks/run/plain_pods.
inline constexpr char kLabelQueue[] = "kueue.x-k8s.io/queue-name";  // on the TrainingJob, or its template
inline constexpr char kLabelQueueGroup[] = "kueue.x-k8s.io/pod-group-name";
inline constexpr char kAnnotationQueueGroupCount[] = "kueue.x-k8s.io/pod-group-total-count";
inline constexpr char kAnnotationQueueRetriable[] = "kueue.x-k8s.io/retriable-in-group";

// Of all pods of an attempt, whoever places them together.
inline std::string GroupName(const std::string& job, int64_t attempt) { return job + "-" + std::to_string(attempt); }
inline std::string PodName(const std::string& job, int64_t attempt, int64_t rank) {
  return job + "-" + std::to_string(attempt) + "-" + std::to_string(rank);
}
// The service of worker 0. A job that is called like it has a service of this name as well: the later one says
// NameInUse.
inline std::string MasterServiceName(const std::string& job) { return job + "-master"; }

}  // namespace trainyard::api

#endif  // TRAINYARD_OPERATOR_API_LABELS_H_
