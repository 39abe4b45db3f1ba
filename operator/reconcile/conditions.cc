#include "operator/reconcile/conditions.h"

#include <algorithm>

#include "common/text.h"

namespace trainyard::reconcile {
namespace {

// Longer ones are refused by the schema, and the whole status with them.
constexpr size_t kMaxReason = 1024, kMaxMessage = 8192;

}  // namespace

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
  found->reason = Cut(reason, kMaxReason);
  found->message = Shorten(message, kMaxMessage);
  found->observed_generation = generation;
}

void ClearCondition(api::JobStatus& status, const std::string& type, const std::string& reason,
                    const std::string& message, Time now, int64_t generation) {
  if (FindCondition(status, type)) SetCondition(status, type, false, reason, message, now, generation);
}

}  // namespace trainyard::reconcile
