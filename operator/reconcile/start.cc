#include <algorithm>

#include "operator/api/labels.h"
#include "operator/reconcile/conditions.h"
#include "operator/reconcile/gang.h"
#include "operator/reconcile/policies.h"
#include "operator/reconcile/worker_pod.h"

namespace trainyard::reconcile {
namespace {

// Workers that are at a stage, or have succeeded.
int64_t CountStage(const Observed& observed, bool (*holds)(const PodRecord&)) {
  int64_t count = 0;
  for (size_t i = 0; i < observed.current.size(); ++i) {
    const Pod& pod = observed.current[i];
    if (observed.done.contains(static_cast<int64_t>(i)) || (pod && holds(*pod))) ++count;
  }
  return count;
}

// Whether it says what keeps it from its start.
bool Waits(const Pod& pod) {
  return pod && !pod->ready && !pod->end && !pod->waiting_reason.empty() &&
         pod->waiting_reason != "ContainerCreating" && pod->waiting_reason != "PodInitializing";
}

// "; job-1-0: Unschedulable: 0/3 nodes are available"
std::string WordsOf(const Observed& observed, const PodRecord& pod) {
  std::string words = "; " + pod.name + ": " + pod.waiting_reason.str() +
                      (pod.waiting_message.empty() ? "" : ": " + pod.waiting_message.str());
  if (pod.waiting_reason == "SchedulingGated" && !QueueOf(observed.job).empty())
    words += "; Kueue's queue " + QueueOf(observed.job) + " has not let pod group " +
             api::GroupName(observed.job.name, pod.attempt) + " in";
  return words;
}

// "2 of 4 workers are ready", and what the first that is not waits for. Of a gang the first that says something else
// as well: those that would fit wait for the others, and only one that does not says why.
void SetStage(const Observed& observed, api::JobStatus& status, const char* type, const char* what, int64_t count,
              Time now) {
  const auto workers = static_cast<int64_t>(observed.current.size());
  const bool all = count == workers;
  std::string reason = !all                                            ? "Waiting"
                       : std::string_view(type) == kScheduledCondition ? "AllWorkersScheduled"
                                                                       : "AllWorkersReady";
  std::string message = std::to_string(count) + " of " + std::to_string(workers) + " workers are " + what;
  const PodRecord* first = nullptr;
  for (const Pod& pod : observed.current) {
    const bool has_come = std::string_view(type) == kScheduledCondition && pod && pod->scheduled;
    if (all || has_come || !Waits(pod)) continue;
    if (first && pod->waiting_reason == first->waiting_reason && pod->waiting_message == first->waiting_message)
      continue;
    message += WordsOf(observed, *pod);
    if (!first) reason = pod->waiting_reason;
    if (first || !GangOf(observed.job)) break;
    first = pod.get();
  }
  SetCondition(status, type, all, reason, message, now, observed.job.generation);
}

void SetPhase(const Observed& observed, Plan& plan, Time now) {
  api::JobStatus& status = plan.status;
  const int64_t scheduled =
      CountStage(observed, [](const PodRecord& pod) { return pod.scheduled || pod.end.has_value(); });
  const int64_t started = CountStage(observed, [](const PodRecord& pod) { return pod.ready || pod.end.has_value(); });
  SetStage(observed, status, kScheduledCondition, "scheduled", scheduled, now);
  SetStage(observed, status, kWorkersReadyCondition, "ready", started, now);
  if (started == static_cast<int64_t>(observed.current.size())) {
    if (!IsTrue(status, kRunningCondition))
      plan.events.push_back(
          {"Normal", "Running",
           "all " + std::to_string(started) + " workers of attempt " + std::to_string(status.attempt) + " run"});
    SetCondition(status, kRunningCondition, true, "AllWorkersReady", "all workers of the attempt run", now,
                 observed.job.generation);
    ClearCondition(status, kRestartingCondition, "Running", "", now, observed.job.generation);
    status.phase = api::kRunning;
  } else if (!IsTrue(status, kRunningCondition)) {
    status.phase = IsTrue(status, kRestartingCondition)          ? api::kRestarting
                   : scheduled > 0 || status.workers.created > 0 ? api::kStarting
                                                                 : api::kPending;
  }
}

// An edit in a suspension that came and went unseen, while the attempt had all its pods: they run with the spec of
// before, and the generation that the status shows says otherwise.
void NoteOldSpec(const Observed& observed, Plan& plan) {
  const api::JobStatus& status = plan.status;
  const bool seen = observed.job.status.observed_generation == observed.job.generation;
  const bool complete = status.workers.created >= static_cast<int64_t>(observed.current.size());
  if (seen || !complete || status.spec_hash.empty() || status.spec_hash == SpecHash(observed.job)) return;
  plan.events.push_back({"Warning", "OldSpec",
                         "the workers of attempt " + std::to_string(status.attempt) +
                             " run with the spec of before the last edit; suspend the job and resume it, or let it "
                             "restart, and they take the new one"});
}

}  // namespace

Plan CreateMissing(const Observed& observed, Plan plan, Time now) {
  if (IsBlocked(observed)) {
    if (plan.status.workers.created > 0) SetPhase(observed, plan, now);
    return plan;
  }
  NoteOldSpec(observed, plan);
  const bool incomplete = plan.status.workers.created < static_cast<int64_t>(observed.current.size());
  if (incomplete && plan.status.spec_hash != SpecHash(observed.job)) {
    // The spec has changed in a suspension that came and went unseen, and an attempt never mixes two. That no pod was
    // made from the old one is not known: the status may not have heard of one, nor any cache.
    NextAttempt(observed, plan, now);
    return plan;
  }
  const api::Condition* restarting = FindCondition(plan.status, kRestartingCondition);
  if (restarting && restarting->status == "True" && plan.status.workers.created == 0) {
    const Time since = restarting->last_transition_time.value_or(now);
    const double wait = RestartWait(observed.job.spec, plan.status);
    // A time of the future is another clock's, or of ours before it was set back: so long nobody meant to wait.
    if (since <= After(now, wait) && !plan.IsDue(After(since, wait), now)) return plan;
  }
  if (AwaitEarlier(observed, plan, now)) return plan;
  plan.needs_services = true;
  plan.RequeueIn(kServiceSeconds);  // nothing tells of one that someone has deleted
  for (size_t i = 0; i < observed.current.size(); ++i) {
    const auto worker = static_cast<int64_t>(i);
    if (!observed.current[i] && !observed.done.contains(worker) && !observed.coming.contains(worker))
      plan.creates.push_back(worker);
  }
  SetPhase(observed, plan, now);
  plan.needs_group = GangOf(observed.job) && !IsTrue(plan.status, kScheduledCondition);
  return plan;
}

void NoteGroup(const Observed& observed, const std::string& news, Plan& plan, Time now) {
  const api::Condition* scheduled = FindCondition(plan.status, kScheduledCondition);
  if (!scheduled || scheduled->status == "True") return;
  const std::string group = api::GroupName(observed.job.name, plan.status.attempt);
  const std::string reason = scheduled->reason, message = scheduled->message + "; PodGroup " + group + ": " + news;
  SetCondition(plan.status, kScheduledCondition, false, reason, message, now, observed.job.generation);
}

void CountCreated(const Observed& observed, const IndexSet& made, Plan& plan) {
  int64_t count = 0;
  for (size_t i = 0; i < observed.current.size(); ++i) {
    const auto worker = static_cast<int64_t>(i);
    if (observed.current[i] || observed.done.contains(worker) || made.contains(worker)) ++count;
  }
  api::JobStatus& status = plan.status;
  status.workers.created = std::max(status.workers.created, count);
  if (count > 0 && status.phase == api::kPending) status.phase = api::kStarting;
}

}  // namespace trainyard::reconcile
