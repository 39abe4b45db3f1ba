#include <algorithm>
#include <cmath>

#include "common/text.h"
#include "operator/reconcile/conditions.h"
#include "operator/reconcile/culprit.h"
#include "operator/reconcile/policies.h"

namespace trainyard::reconcile {
namespace {

// How long the operator waits for the other workers' ends after the first failure: the cause may be
// the last to be seen.
constexpr double kEvidenceSeconds = 15;
constexpr size_t kMaxCause = 240;  // bytes of what a worker said, in a condition and an event

bool Matches(const api::RestartRule& rule, const FailedWorker& culprit) {
  if (!rule.on_pod_condition.empty()) {
    if (!culprit.pod) return false;
    const auto& conditions = culprit.pod->true_conditions;
    return std::find(conditions.begin(), conditions.end(), rule.on_pod_condition) != conditions.end();
  }
  // A pod that was deleted was told to stop: its exit code says nothing about the training.
  if (culprit.disrupted) return false;
  return std::find(rule.on_exit_codes.begin(), rule.on_exit_codes.end(), culprit.failure.exit_code) !=
         rule.on_exit_codes.end();
}

// The first rule that matches; none: a charged restart, a free one after a disruption.
api::RestartRule Judge(const std::vector<api::RestartRule>& rules, const FailedWorker& culprit) {
  for (const api::RestartRule& rule : rules) {
    if (Matches(rule, culprit)) return rule;
  }
  return {.on_pod_condition = "", .on_exit_codes = {}, .action = "Restart", .charge = !culprit.disrupted};
}

void CountStreak(api::JobStatus& status, const FailedWorker& culprit) {
  if (!status.failure_streak) status.failure_streak.emplace();
  api::FailureStreak& streak = *status.failure_streak;
  const bool same = streak.reason == culprit.failure.reason && streak.step == culprit.step;
  streak = {.reason = culprit.failure.reason, .step = culprit.step, .count = same ? streak.count + 1 : 1};
}

// "pod job-1-1 (rank 3) ended with 139 (Signal11): ..."
std::string Describe(const FailedWorker& culprit) {
  const api::Failure& failure = culprit.failure;
  std::string text = "pod " + failure.pod;
  if (failure.rank != culprit.worker) text += " (rank " + std::to_string(failure.rank) + ")";
  text += culprit.pod ? " ended with " + std::to_string(failure.exit_code) + " (" + failure.reason + ")"
                      : ": " + failure.reason;
  // All of it is in status.firstFailure.
  return failure.message.empty() ? text : text + ": " + Shorten(failure.message, kMaxCause);
}

// When the first failure of this attempt was seen, as far as it is known: a pod that vanished or never
// ran has no time of its own, so the provisional culprit in the status keeps it.
Time FirstFailureTime(const Observed& observed, const std::vector<FailedWorker>& failed, Time now) {
  Time first = now;
  for (const FailedWorker& worker : failed) first = std::min(first, worker.failure.time.value_or(now));
  const std::optional<api::Failure>& known = observed.job.status.first_failure;
  if (known && known->attempt == observed.job.status.attempt) first = std::min(first, known->time.value_or(now));
  return first;
}

bool EvidenceIsComplete(const Observed& observed, const std::vector<FailedWorker>& failed, Time now, double& left) {
  const bool all_ended =
      std::all_of(observed.current.begin(), observed.current.end(), [](const Pod& pod) { return !pod || pod->end; });
  if (all_ended) return true;
  left = kEvidenceSeconds - SecondsBetween(FirstFailureTime(observed, failed, now), now);
  return left <= 0;
}

// Says at once what is known; who it was in the end is judged later.
Plan AwaitEvidence(const Observed& observed, const std::vector<FailedWorker>& failed, double left, Plan plan,
                   Time now) {
  api::JobStatus& status = plan.status;
  plan.RequeueIn(left);
  const bool known = status.first_failure && status.first_failure->attempt == status.attempt;
  if (known && !IsTrue(status, kReadyCondition) && !IsTrue(status, kRunningCondition)) return plan;
  const FailedWorker& first = Culprit(failed, observed.job.spec.restart.rules);
  if (!known) status.first_failure = first.failure;
  const std::string message = Describe(first) + "; the other workers' ends are awaited for " +
                              std::to_string(static_cast<int>(kEvidenceSeconds)) + " s";
  for (const char* type : {kReadyCondition, kRunningCondition})
    ClearCondition(status, type, "WorkerFailed", message, now, observed.job.generation);
  plan.events.push_back({"Warning", "WorkerFailed", message});
  return plan;
}

Plan Restart(const Observed& observed, Plan plan, const FailedWorker& culprit, bool charged, Time now) {
  NextAttempt(observed, plan, now);
  api::JobStatus& status = plan.status;
  ++status.restarts.total;
  if (charged) ++status.restarts.charged;
  status.restarts.durable_step = std::max(status.restarts.durable_step, status.checkpoint.step);
  const std::string message = Describe(culprit) + "; restart " + std::to_string(status.restarts.total) +
                              (charged ? ", charged " + std::to_string(status.restarts.charged) + " of " +
                                             std::to_string(observed.job.spec.restart.max_restarts)
                                       : ", not charged");
  SetCondition(status, kRestartingCondition, true, culprit.failure.reason, message, now, observed.job.generation);
  // The wait counts from here, also when the last attempt never ran.
  for (api::Condition& condition : status.conditions) {
    if (condition.type == kRestartingCondition) condition.last_transition_time = now;
  }
  status.phase = api::kRestarting;
  plan.events.push_back({"Warning", "Restarting", message});
  return plan;
}

}  // namespace

Plan RestartOrFail(const Observed& observed, const std::vector<FailedWorker>& failed, Plan plan, Time now) {
  if (double left = 0; !EvidenceIsComplete(observed, failed, now, left))
    return AwaitEvidence(observed, failed, left, std::move(plan), now);
  const api::Restart& policy = observed.job.spec.restart;
  const FailedWorker& culprit = Culprit(failed, policy.rules);
  const api::RestartRule rule = Judge(policy.rules, culprit);
  api::JobStatus& status = plan.status;
  status.first_failure = culprit.failure;
  status.checkpoint.step = std::max(status.checkpoint.step, culprit.checkpoint_step);
  if (rule.action == "Fail")
    return Fail(observed, std::move(plan), culprit.failure.reason, Describe(culprit) + "; a rule says Fail", now);
  CountStreak(status, culprit);
  const bool progressed = status.checkpoint.step > status.restarts.durable_step;
  const bool charged = rule.charge && !progressed;
  if (rule.charge && status.failure_streak->count >= policy.same_step_limit) {
    return Fail(observed, std::move(plan), "SameStepLimit",
                Describe(culprit) + "; " + std::to_string(policy.same_step_limit) + " times in a row at step " +
                    std::to_string(culprit.step),
                now);
  }
  if (charged && status.restarts.charged >= policy.max_restarts) {
    return Fail(observed, std::move(plan), "MaxRestarts",
                Describe(culprit) + "; all " + std::to_string(policy.max_restarts) + " charged restarts are used up",
                now);
  }
  return Restart(observed, std::move(plan), culprit, charged, now);
}

double RestartWait(const api::JobSpec& spec, const api::JobStatus& status) {
  const api::Backoff& backoff = spec.restart.backoff;
  // Free restarts come at once, unless they repeat themselves.
  const int64_t repeats = status.failure_streak ? status.failure_streak->count - 1 : 0;
  const int64_t doublings = status.restarts.charged > 0 ? std::max(status.restarts.charged - 1, repeats) : repeats - 1;
  if (doublings < 0) return 0;
  const double wait =
      static_cast<double>(backoff.initial_seconds) * std::pow(2, static_cast<double>(std::min<int64_t>(doublings, 30)));
  return std::min(wait, static_cast<double>(backoff.max_seconds));
}

}  // namespace trainyard::reconcile
