#include "operator/reconcile/status_writes.h"

#include <algorithm>

#include "operator/api/json.h"
#include "operator/reconcile/conditions.h"

namespace trainyard::reconcile {
namespace {

using api::Json;
constexpr double kCountsSeconds = 1, kLongestSeconds = 10;

// A third of the time that the attempt has taken so far.
double Interval(const api::JobStatus& status, Time now) {
  const double age = status.attempt_time ? SecondsBetween(*status.attempt_time, now) : 0;
  return std::clamp(age / 3, kCountsSeconds, kLongestSeconds);
}

// `after` as if the pods were still as far as `before` says.
api::JobStatus WithCountsOf(const api::JobStatus& before, api::JobStatus after) {
  after.workers.active = before.workers.active;
  after.workers.ready = before.workers.ready;
  if (after.attempt == before.attempt) after.startup = before.startup;
  for (api::Condition& condition : after.conditions) {
    if (condition.type != kScheduledCondition && condition.type != kWorkersReadyCondition) continue;
    if (const api::Condition* old = FindCondition(before, condition.type)) condition = *old;
  }
  return after;
}

}  // namespace

double WriteDelay(const api::JobStatus& before, const api::JobStatus& after, std::optional<double> seconds_ago,
                  Time now) {
  const double interval = Interval(after, now);
  if (!seconds_ago || *seconds_ago >= interval) return 0;
  const Json old = api::StatusToJson(before);
  if (api::StatusToJson(after) == old) return 0;
  const bool counts = api::StatusToJson(WithCountsOf(before, after)) == old;
  return counts ? interval - *seconds_ago : 0;
}

}  // namespace trainyard::reconcile
