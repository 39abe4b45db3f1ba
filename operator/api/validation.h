// What a TrainingJob may say, beyond the types and ranges of its fields: the checks of the first
// reconcile of a generation and of `trainyard-operator validate`.
#ifndef TRAINYARD_OPERATOR_API_VALIDATION_H_
#define TRAINYARD_OPERATOR_API_VALIDATION_H_

#include <vector>

#include "operator/api/field_error.h"
#include "operator/api/training_job.h"

namespace trainyard::api {

// The most that RuleBytes may say of a job's rules, which are kept as long as the job.
inline constexpr size_t kMostRuleBytes = size_t{16} << 10;
// About what they take in memory, in bytes: a condition's length, 8 for each exit code, 32 and its length for each
// reason.
size_t RuleBytes(const std::vector<RestartRule>& rules);

// Everything that is wrong with `job`, in the order of the fields. Empty: the operator may act on it.
std::vector<FieldError> Validate(const TrainingJob& job);

// What is wrong with the pod template and the checkpoint volume by pod_fields.h. Not the operator's own check:
// the API server that it works for may know fields that came later.
std::vector<FieldError> CheckPodFields(const JobSpec& spec);

// What is wrong with a job's metadata but its name, which Validate looks at.
std::vector<FieldError> CheckMetadata(const Json& metadata);

// The container that trains: the one named trainer, else the first. `pod`: a pod or a pod template. Null
// when there is none.
const Json* TrainerContainer(const Json& pod);

// GPUs, and slices of them, that a container is limited to; 0 without such a limit.
int64_t DevicesOf(const Json& container);

// Processes of each worker: spec.procsPerWorker, or what auto means for the template; >= 1.
int64_t ProcsPerWorker(const JobSpec& spec);

}  // namespace trainyard::api

#endif  // TRAINYARD_OPERATOR_API_VALIDATION_H_
