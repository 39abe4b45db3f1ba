#include "operator/reconcile/status_writes.h"

#include <algorithm>
#include <utility>

#include "operator/reconcile/conditions.h"

namespace trainyard::reconcile {
namespace {

constexpr double kCountsSeconds = 1, kLongestSeconds = 10, kMadeSeconds = 5;

// Half of the time that the attempt has taken so far.
double Interval(const api::JobStatus& status, Time now) {
  const double age = status.attempt_time ? SecondsBetween(*status.attempt_time, now) : 0;
  return std::clamp(age / 2, kCountsSeconds, kLongestSeconds);
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

// `after` as if its pods that were created since were not known of.
api::JobStatus WithPodsOf(const api::JobStatus& before, api::JobStatus after) {
  after = WithCountsOf(before, std::move(after));
  after.workers.created = before.workers.created;
  after.master = before.master;
  if (after.phase == api::kStarting) after.phase = before.phase;
  std::erase_if(after.conditions, [&](const api::Condition& condition) {
    return (condition.type == kScheduledCondition || condition.type == kWorkersReadyCondition) &&
           !FindCondition(before, condition.type);
  });
  return after;
}

// What is left of so many seconds after what was done so long ago.
double Left(double seconds, const std::optional<double>& ago) { return ago ? std::max(seconds - *ago, 0.0) : 0; }

}  // namespace

double WriteDelay(const api::JobStatus& before, const api::JobStatus& after, const Since& since, Time now) {
  if (after == before) return 0;
  if (WithCountsOf(before, after) == before) return Left(Interval(after, now), since.written);
  if (after.workers.created <= before.workers.created || WithPodsOf(before, after) != before) return 0;
  const bool all = after.workers.created == after.workers.desired;
  const double apart = all ? kMadeSeconds : std::max(kMadeSeconds, Interval(after, now));
  return std::max(Left(kMadeSeconds, since.made), Left(apart, since.written));
}

}  // namespace trainyard::reconcile
