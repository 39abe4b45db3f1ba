#include "operator/reconcile/status_writes.h"

#include <algorithm>

#include "operator/api/json.h"
#include "operator/reconcile/conditions.h"

namespace trainyard::reconcile {
namespace {

using api::Json;
constexpr double kCountsSeconds = 1;

// `after` as if the pods were still as far as `before` says.
api::JobStatus WithCountsOf(const api::JobStatus& before, api::JobStatus after) {
  after.workers.active = before.workers.active;
  after.workers.ready = before.workers.ready;
  for (api::Condition& condition : after.conditions) {
    if (condition.type != kScheduledCondition && condition.type != kWorkersReadyCondition) continue;
    if (const api::Condition* old = FindCondition(before, condition.type)) condition = *old;
  }
  return after;
}

}  // namespace

double WriteDelay(const api::JobStatus& before, const api::JobStatus& after, std::optional<double> seconds_ago) {
  if (!seconds_ago || *seconds_ago >= kCountsSeconds) return 0;
  const Json old = api::StatusToJson(before);
  const bool changed = api::StatusToJson(after) != old;
  const bool counts = api::StatusToJson(WithCountsOf(before, after)) == old;
  return changed && counts ? std::max(0.0, kCountsSeconds - *seconds_ago) : 0;
}

}  // namespace trainyard::reconcile
