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
constexpr double kLongRunSeconds = 600;
constexpr size_t kMaxFailures = 10;
constexpr size_t kMaxCause = 240;  // bytes of what a worker said, in a condition and an event

bool Matches(const api::RestartRule& rule, const FailedWorker& culprit) {
  if (!rule.on_pod_condition.empty()) return culprit.pod && culprit.pod->HasCondition(rule.on_pod_condition);
  if (!rule.on_reasons.empty()) {
    return std::find(rule.on_reasons.begin(), rule.on_reasons.end(), culprit.failure.reason) != rule.on_reasons.end();
  }
  // A pod that was deleted was told to stop: its exit code says nothing about the training. One that a deadline ended
  // has none.
  if (culprit.disrupted || !culprit.failure.exit_code) return false;
  return std::find(rule.on_exit_codes.begin(), rule.on_exit_codes.end(), *culprit.failure.exit_code) !=
         rule.on_exit_codes.end();
}

struct Judgment {
  std::string action;
  std::string rule;  // which one says so, for people; empty: none does
};

// "spec.restart.rules[1]", or the default for exit codes.
std::string NameOf(const api::Restart& policy, size_t rule, const FailedWorker& culprit) {
  if (rule < policy.rules.size()) return "spec.restart.rules[" + std::to_string(rule) + "]";
  return "the default rule for exit code " + std::to_string(culprit.failure.exit_code.value_or(0));
}

// The first rule that matches; none: a charged restart, a free one after a disruption.
Judgment Judge(const api::Restart& policy, const std::vector<api::RestartRule>& rules, const FailedWorker& culprit) {
  for (size_t i = 0; i < rules.size(); ++i) {
    if (Matches(rules[i], culprit)) return {rules[i].action, NameOf(policy, i, culprit)};
  }
  return {culprit.disrupted ? api::kRestartUncharged : api::kRestart, ""};
}

// A step that nobody knows is not the same as another.
void CountStreak(api::Restarts& restarts, const api::Failure& failure, bool progressed) {
  if (!failure.step) return restarts.streak.reset();
  const std::optional<api::FailureStreak>& streak = restarts.streak;
  const bool same = !progressed && streak && streak->reason == failure.reason && streak->step == *failure.step;
  restarts.streak = {.reason = failure.reason, .step = *failure.step, .count = same ? streak->count + 1 : 1};
}

void Record(api::JobStatus& status, const api::Failure& failure) {
  status.last_failure = failure;
  status.failures.insert(status.failures.begin(), {.attempt = failure.attempt,
                                                   .reason = failure.reason,
                                                   .rank = failure.rank,
                                                   .node = failure.node,
                                                   .step = failure.step,
                                                   .time = failure.time});
  if (status.failures.size() > kMaxFailures) status.failures.resize(kMaxFailures);
}

// "pod job-1-1 (rank 3) ended with 139 (Signal11): ..."
std::string Describe(const FailedWorker& culprit) {
  const api::Failure& failure = culprit.failure;
  std::string text = "pod " + failure.pod;
  if (failure.rank != culprit.worker) text += " (rank " + std::to_string(failure.rank) + ")";
  text += failure.exit_code ? " ended with " + std::to_string(*failure.exit_code) + " (" + failure.reason + ")"
                            : ": " + failure.reason;
  // All of it is in status.lastFailure.
  return failure.message.empty() ? text : text + ": " + Shorten(failure.message, kMaxCause);
}

bool EvidenceIsComplete(const Observed& observed, Time now, double& left) {
  const bool all_ended = observed.coming.empty() &&
                         std::all_of(observed.current.begin(), observed.current.end(),
                                     [&](const Pod& pod) { return !pod || pod->end || IsLost(observed, *pod, now); });
  if (all_ended) return true;
  left = kEvidenceSeconds - observed.failing_seconds;
  return left <= 0;
}

// Says at once what is known; who it was in the end is judged later.
Plan AwaitEvidence(const Observed& observed, const std::vector<FailedWorker>& failed, double left, Plan plan,
                   Time now) {
  api::JobStatus& status = plan.status;
  plan.RequeueIn(left);
  const bool known = status.last_failure && status.last_failure->attempt == status.attempt;
  if (known && !IsTrue(status, kWorkersReadyCondition) && !IsTrue(status, kRunningCondition)) return plan;
  const FailedWorker& first = Culprit(failed, api::RulesInForce(observed.job.spec.restart));
  if (!known) status.last_failure = first.failure;
  const std::string message = Describe(first) + "; the other workers' ends are awaited for " +
                              std::to_string(static_cast<int>(kEvidenceSeconds)) + " s";
  for (const char* type : {kWorkersReadyCondition, kRunningCondition})
    ClearCondition(status, type, "WorkerFailed", message, now, observed.job.generation);
  status.phase = api::kRestarting;
  plan.events.push_back({"Warning", "WorkerFailed", message});
  return plan;
}

// Whether the attempt ran so long that its end is no repetition of the one before, as a kubelet sees it with a
// container. It runs since it is no longer restarting.
bool RanLong(const api::JobStatus& status, Time now) {
  const api::Condition* restarting = FindCondition(status, kRestartingCondition);
  return restarting && restarting->status == "False" && restarting->last_transition_time &&
         SecondsBetween(*restarting->last_transition_time, now) >= kLongRunSeconds;
}

// Where a worker was that could not say so itself, as one does that the kernel killed: what rank 0 answered last.
std::optional<int64_t> ReportedStep(const Observed& observed) {
  const Report* report = CurrentReport(observed);
  return report ? report->progress.step : std::nullopt;
}

struct Restarting {
  bool charged = false, fresh = false;  // fresh: the first one, or after progress or a long run
};

Plan Restart(const Observed& observed, Plan plan, const FailedWorker& culprit, Restarting how, Time now) {
  NextAttempt(observed, plan, now);
  api::JobStatus& status = plan.status;
  api::Restarts& restarts = status.restarts;
  ++restarts.total;
  if (how.charged) ++restarts.charged;
  // A free restart comes at once; what repeats itself waits.
  restarts.repeats = how.fresh ? how.charged : restarts.repeats + 1;
  restarts.durable_step = std::max(restarts.durable_step, status.checkpoint.step);
  const std::string message = Describe(culprit) + "; restart " + std::to_string(restarts.total) +
                              (how.charged ? ", charged " + std::to_string(restarts.charged) + " of " +
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
  if (double left = 0; !EvidenceIsComplete(observed, now, left))
    return AwaitEvidence(observed, failed, left, std::move(plan), now);
  const std::vector<FailedWorker> suspects = Suspects(observed, failed, now);
  return EndAttempt(observed, Culprit(suspects, api::RulesInForce(observed.job.spec.restart)), std::move(plan), now);
}

Plan EndAttempt(const Observed& observed, FailedWorker culprit, Plan plan, Time now) {
  const api::Restart& policy = observed.job.spec.restart;
  const std::vector<api::RestartRule> rules = api::RulesInForce(policy);
  const Judgment judgment = Judge(policy, rules, culprit);
  api::JobStatus& status = plan.status;
  if (!culprit.failure.step) culprit.failure.step = ReportedStep(observed);
  Record(status, culprit.failure);
  if (judgment.action == api::kFail)
    return Fail(observed, std::move(plan), culprit.failure.reason,
                Describe(culprit) + "; " + judgment.rule + " says Fail", now);
  const bool progressed = status.checkpoint.step > status.restarts.durable_step;
  const bool free = judgment.action == api::kRestartUncharged;
  if (!free) NoteCulprit(observed, culprit, plan, now);
  CountStreak(status.restarts, culprit.failure, progressed);
  if (!free && status.restarts.streak && status.restarts.streak->count >= policy.same_step_limit) {
    return Fail(observed, std::move(plan), "SameStepLimit",
                Describe(culprit) + "; " + std::to_string(policy.same_step_limit) + " times in a row at step " +
                    std::to_string(status.restarts.streak->step),
                now);
  }
  const bool charged = !free && !progressed;
  if (charged && status.restarts.charged >= policy.max_restarts) {
    return Fail(observed, std::move(plan), "MaxRestarts",
                Describe(culprit) + "; all " + std::to_string(policy.max_restarts) + " charged restarts are used up",
                now);
  }
  const bool fresh = progressed || status.restarts.total == 0 || RanLong(observed.job.status, now);
  return Restart(observed, std::move(plan), culprit, {.charged = charged, .fresh = fresh}, now);
}

double RestartWait(const api::JobSpec& spec, const api::JobStatus& status) {
  const api::Backoff& backoff = spec.restart.backoff;
  const int64_t doublings = status.restarts.repeats - 1;
  if (doublings < 0) return 0;
  const double wait =
      static_cast<double>(backoff.initial_seconds) * std::pow(2, static_cast<double>(std::min<int64_t>(doublings, 30)));
  return std::min(wait, static_cast<double>(backoff.max_seconds));
}

}  // namespace trainyard::reconcile
