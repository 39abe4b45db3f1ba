#include "operator/reconcile/status_writes.h"

#include <algorithm>
#include <initializer_list>
#include <string_view>
#include <utility>

#include "operator/reconcile/conditions.h"

namespace trainyard::reconcile {
namespace {

constexpr double kCountsSeconds = 1, kLongestSeconds = 10, kMadeSeconds = 5;
// Others' pods are being created while the newest is so young; whether they still are is asked again so often.
constexpr double kBusySeconds = 1, kLookAgainSeconds = 2;

// A third of the time that the attempt has taken so far.
double Interval(const api::JobStatus& status, Time now) {
  const double age = status.attempt_time ? SecondsBetween(*status.attempt_time, now) : 0;
  return std::clamp(age / 3, kCountsSeconds, kLongestSeconds);
}

// `after` with those conditions as they were, and without those that were not there.
void Restore(const api::JobStatus& before, std::initializer_list<std::string_view> types, api::JobStatus& after) {
  std::erase_if(after.conditions, [&](api::Condition& condition) {
    if (std::find(types.begin(), types.end(), condition.type) == types.end()) return false;
    const api::Condition* old = FindCondition(before, condition.type);
    if (old) condition = *old;
    return !old;
  });
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
  Restore(before, {kScheduledCondition, kWorkersReadyCondition}, after);
  return after;
}

// `after` as if they did not run yet either.
api::JobStatus WithStartOf(const api::JobStatus& before, api::JobStatus after) {
  if (after.phase == api::kRunning) after.phase = before.phase;
  Restore(before, {kRunningCondition, kRestartingCondition}, after);
  return WithPodsOf(before, std::move(after));
}

// Whether only the attempt's start is news, and gives way to the pods of others.
bool GivesWay(const api::JobStatus& before, const api::JobStatus& after, const Since& since) {
  return since.others && *since.others < kBusySeconds && WithStartOf(before, after) == before;
}

// What is left of so many seconds after what was done so long ago.
double Left(double seconds, const std::optional<double>& ago) { return ago ? std::max(seconds - *ago, 0.0) : 0; }

}  // namespace

double WriteDelay(const api::JobStatus& before, const api::JobStatus& after, const Since& since, Time now) {
  if (after == before) return 0;
  if (WithCountsOf(before, after) == before) return Left(Interval(after, now), since.written);
  if (const double left = Left(kLongestSeconds, since.made); left > 0 && GivesWay(before, after, since))
    return std::min(left, kLookAgainSeconds);
  if (after.workers.created <= before.workers.created || WithPodsOf(before, after) != before) return 0;
  const double first = Left(kMadeSeconds, since.made);
  if (after.workers.created == after.workers.desired) return first;
  return std::max(first, Left(std::max(kMadeSeconds, Interval(after, now)), since.written));
}

}  // namespace trainyard::reconcile
