// The conditions of a status: a small map with one writer.
#ifndef TRAINYARD_OPERATOR_RECONCILE_CONDITIONS_H_
#define TRAINYARD_OPERATOR_RECONCILE_CONDITIONS_H_

#include <string>

#include "operator/api/training_job.h"

namespace trainyard::reconcile {

inline constexpr char kScheduledCondition[] = "Scheduled";
inline constexpr char kWorkersReadyCondition[] = "WorkersReady";
inline constexpr char kRunningCondition[] = "Running";
inline constexpr char kStalledCondition[] = "Stalled";
inline constexpr char kProgressUnknownCondition[] = "ProgressUnknown";
inline constexpr char kUnfencedCondition[] = "Unfenced";
inline constexpr char kRestartingCondition[] = "Restarting";
inline constexpr char kSuspendedCondition[] = "Suspended";
inline constexpr char kInvalidSpecCondition[] = "InvalidSpec";
inline constexpr char kCompleteCondition[] = "Complete";
inline constexpr char kFailedCondition[] = "Failed";

const api::Condition* FindCondition(const api::JobStatus& status, const std::string& type);
bool IsTrue(const api::JobStatus& status, const std::string& type);

// Sets it, with `now` as the time of transition when its status changes; a message that is too long for the API is
// shortened. Others, also ones that are not ours, stay as they are.
void SetCondition(api::JobStatus& status, const std::string& type, bool value, const std::string& reason,
                  const std::string& message, Time now, int64_t generation);
// Sets it to False, with a new reason, when it exists.
void ClearCondition(api::JobStatus& status, const std::string& type, const std::string& reason,
                    const std::string& message, Time now, int64_t generation);

}  // namespace trainyard::reconcile

#endif  // TRAINYARD_OPERATOR_RECONCILE_CONDITIONS_H_
