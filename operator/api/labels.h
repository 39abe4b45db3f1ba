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
inline constexpr char kAnnotationSpecHash[] = "trainyard.dev/spec-hash";  // of the spec that the pod was made from

inline std::string PodName(const std::string& job, int64_t attempt, int64_t rank) {
  return job + "-" + std::to_string(attempt) + "-" + std::to_string(rank);
}
// The service of worker 0. A job that is called like it has a service of this name as well: the later one says
// NameInUse.
inline std::string MasterServiceName(const std::string& job) { return job + "-master"; }

}  // namespace trainyard::api

#endif  // TRAINYARD_OPERATOR_API_LABELS_H_
