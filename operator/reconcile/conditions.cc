#include "operator/reconcile/conditions.h"

#include <algorithm>

namespace trainyard::reconcile {

const api::Condition* FindCondition(const api::JobStatus& status, const std::string& type) {
  const auto found = std::find_if(status.conditions.begin(), status.conditions.end(),
                                  [&](const api::Condition& c) { return c.type == type; });
  return found == status.conditions.end() ? nullptr : &*found;
}

bool IsTrue(const api::JobStatus& status, const std::string& type) {
  const api::Condition* condition = FindCondition(status, type);
  return condition && condition->status == "True";
}

void SetCondition(api::JobStatus& status, const std::string& type, bool value, const std::string& reason,
                  const std::string& message, Time now, int64_t generation) {
  auto found = std::find_if(status.conditions.begin(), status.conditions.end(),
                            [&](const api::Condition& c) { return c.type == type; });
  if (found == status.conditions.end()) {
    status.conditions.push_back({.type = type,
                                 .status = "",
                                 .reason = "",
                                 .message = "",
                                 .last_transition_time = std::nullopt,
                                 .observed_generation = 0});
    found = std::prev(status.conditions.end());
  }
  const std::string text = value ? "True" : "False";
  if (found->status != text) found->last_transition_time = now;
  found->status = text;
  found->reason = reason;
  found->message = message;
  found->observed_generation = generation;
}

void ClearCondition(api::JobStatus& status, const std::string& type, const std::string& reason,
                    const std::string& message, Time now, int64_t generation) {
  if (FindCondition(status, type)) SetCondition(status, type, false, reason, message, now, generation);
}

}  // namespace trainyard::reconcile
