#include <algorithm>
#include <cmath>

#include "operator/api/labels.h"
#include "operator/reconcile/conditions.h"
#include "operator/reconcile/culprit.h"
#include "operator/reconcile/policies.h"

namespace trainyard::reconcile {
namespace {

bool IsOver(Time since, int64_t seconds, Plan& plan, Time now) {
  return plan.IsDue(After(since, static_cast<double>(seconds)), now);
}

// Workers that have not come so far, by index.
std::vector<int64_t> Lacking(const Observed& observed, bool (*holds)(const PodRecord&)) {
  std::vector<int64_t> lacking;
  for (size_t i = 0; i < observed.current.size(); ++i) {
    const Pod& pod = observed.current[i];
    const auto worker = static_cast<int64_t>(i);
    if (!observed.done.contains(worker) && !(pod && (pod->end || holds(*pod)))) lacking.push_back(worker);
  }
  return lacking;
}

// "3 of 4 workers are not ready 1800 s after all were scheduled (spec.deadlines.startSeconds)", and what the first of
// them waits for.
FailedWorker Late(const Observed& observed, const std::vector<int64_t>& lacking, const char* reason,
                  const std::string& what, Time now) {
  const int64_t worker = lacking.front();
  const Pod& pod = observed.current[static_cast<size_t>(worker)];
  FailedWorker late;
  late.worker = worker;
  late.pod = pod;
  late.failure.attempt = observed.job.status.attempt;
  late.failure.rank = worker;
  late.failure.pod = pod ? pod->name : api::PodName(observed.job.name, observed.job.status.attempt, worker);
  late.failure.node = pod ? pod->node : "";
  late.failure.reason = reason;
  late.failure.message =
      std::to_string(lacking.size()) + " of " + std::to_string(observed.current.size()) + " workers are not " + what;
  if (pod && !pod->waiting_reason.empty())
    late.failure.message +=
        "; this one: " + pod->waiting_reason + (pod->waiting_message.empty() ? "" : ": " + pod->waiting_message);
  late.failure.time = now;
  return late;
}

// When the first of the attempt's pods was created; nothing: none that we know of was. The API server says when, by a
// clock that may be behind the one that began the attempt: no pod is older than its attempt.
std::optional<Time> FirstCreated(const Observed& observed) {
  std::optional<Time> first;
  for (const Pod& pod : observed.current) {
    if (pod && pod->created) first = std::min(first.value_or(*pod->created), *pod->created);
  }
  if (!first) return first;
  return std::max(*first, observed.job.status.attempt_time.value_or(*first));
}

}  // namespace

std::optional<std::string> UsedUp(const Observed& observed, Plan& plan, Time now) {
  const std::optional<int64_t>& limit = observed.job.spec.deadlines.active_seconds;
  const api::JobStatus& status = observed.job.status;
  if (!limit || !status.start_time) return std::nullopt;
  const Time since = After(*status.start_time, static_cast<double>(status.suspended_seconds));
  if (!IsOver(since, *limit, plan, now)) return std::nullopt;
  return "the job has taken " + std::to_string(std::llround(SecondsBetween(since, now))) +
         " s without its suspensions, and spec.deadlines.activeSeconds is " + std::to_string(*limit);
}

std::optional<FailedWorker> LateWorker(const Observed& observed, Plan& plan, Time now) {
  // The deletion ends the attempt, and is what it is judged for, as soon as it is known how the pod ends, or that it
  // does not.
  const auto goes = [&](const Pod& pod) { return pod && observed.unproven.contains(pod->uid); };
  if (std::any_of(observed.current.begin(), observed.current.end(), goes)) return std::nullopt;
  const api::Deadlines& deadlines = observed.job.spec.deadlines;
  const std::vector<int64_t> unscheduled = Lacking(observed, [](const PodRecord& pod) { return pod.scheduled; });
  if (!unscheduled.empty()) {
    const std::optional<Time> since = FirstCreated(observed);
    if (!deadlines.schedule_seconds || !since || !IsOver(*since, *deadlines.schedule_seconds, plan, now))
      return std::nullopt;
    return Late(observed, unscheduled, "ScheduleDeadlineExceeded",
                "scheduled " + std::to_string(*deadlines.schedule_seconds) +
                    " s after the attempt's first pod was created (spec.deadlines.scheduleSeconds)",
                now);
  }
  // A worker that is unready later has started once.
  const std::vector<int64_t> unready = Lacking(observed, [](const PodRecord& pod) { return pod.ready; });
  if (unready.empty() || IsTrue(observed.job.status, kRunningCondition)) return std::nullopt;
  // What is not written yet is so from the pass on that writes it: a second later, or five after a start.
  const api::Condition* scheduled = FindCondition(observed.job.status, kScheduledCondition);
  const bool known = scheduled && scheduled->status == "True";
  if (!IsOver(known ? scheduled->last_transition_time.value_or(now) : now, deadlines.start_seconds, plan, now))
    return std::nullopt;
  return Late(
      observed, unready, "StartDeadlineExceeded",
      "ready " + std::to_string(deadlines.start_seconds) + " s after all were scheduled (spec.deadlines.startSeconds)",
      now);
}

}  // namespace trainyard::reconcile
