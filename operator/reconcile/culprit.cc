#include "operator/reconcile/culprit.h"

#include <algorithm>
#include <tuple>

#include "operator/api/exit_reason.h"
#include "operator/api/labels.h"

namespace trainyard::reconcile {
namespace {

std::string ReasonOf(const PodEnd& end) {
  if (!end.reason.empty() && end.reason != "Error") return end.reason;  // OOMKilled, Evicted, ContainerCannotRun, ...
  return ExitReason(end.exit_code);
}

// When `pod` ended. A pod that a kubelet rejected or evicted has no container to tell: then when it was
// first seen, which the provisional culprit keeps.
Time EndTime(const Observed& observed, const PodRecord& pod, Time now) {
  if (pod.end->time) return *pod.end->time;
  const std::optional<api::Failure>& known = observed.job.status.first_failure;
  const bool same = known && known->attempt == observed.job.status.attempt && known->pod == pod.name;
  return same ? known->time.value_or(now) : now;
}

FailedWorker FromEnd(const Observed& observed, int64_t worker, const Pod& pod, Time now) {
  const PodEnd& end = *pod->end;
  FailedWorker failed{.worker = worker,
                      .pod = pod,
                      .disrupted = pod->disrupted || pod->deleting,
                      .failure = {},
                      .step = 0,
                      .checkpoint_step = 0};
  api::Failure& failure = failed.failure;
  failure.attempt = observed.job.status.attempt;
  failure.pod = pod->name;
  failure.node = pod->node;
  failure.exit_code = end.exit_code;
  failure.signal = end.signal != 0 ? end.signal : end.exit_code > 128 && end.exit_code < 160 ? end.exit_code - 128 : 0;
  failure.time = EndTime(observed, *pod, now);
  failure.reason = pod->disrupted ? "DisruptionTarget" : pod->deleting ? "PodDeleted" : ReasonOf(end);
  const LastWords& words = end.words;
  failure.rank = words.rank.value_or(worker);
  failure.message = words.message;
  if (!end.init_container.empty())
    failure.message = "init container " + end.init_container + (words.message.empty() ? "" : ": " + words.message);
  failure.tail = words.tail;
  // The kubelet's own reason (OOMKilled) knows more than the launcher could.
  const bool from_code = end.reason.empty() || end.reason == "Error";
  if (!failed.disrupted && from_code && !words.reason.empty()) failure.reason = words.reason;
  failed.step = words.step;
  failed.checkpoint_step = words.checkpoint_step;
  return failed;
}

FailedWorker Vanished(const Observed& observed, int64_t worker, Time now) {
  FailedWorker failed{
      .worker = worker, .pod = nullptr, .disrupted = true, .failure = {}, .step = 0, .checkpoint_step = 0};
  failed.failure.attempt = observed.job.status.attempt;
  failed.failure.rank = worker;
  failed.failure.pod = api::PodName(observed.job.name, observed.job.status.attempt, worker);
  failed.failure.reason = "PodVanished";
  failed.failure.message = "the pod was deleted and left nothing behind";
  failed.failure.time = now;
  return failed;
}

bool Permanent(int64_t code, const std::vector<api::RestartRule>& rules) {
  return std::any_of(rules.begin(), rules.end(), [&](const api::RestartRule& rule) {
    return rule.action == "Fail" &&
           std::find(rule.on_exit_codes.begin(), rule.on_exit_codes.end(), code) != rule.on_exit_codes.end();
  });
}

// When the first disruption began; one without a time may explain everything.
Time FirstDisruption(const std::vector<FailedWorker>& workers) {
  Time first = Time::max();
  for (const FailedWorker& worker : workers) {
    if (worker.pod && worker.pod->disrupted) first = std::min(first, worker.pod->disrupted_at.value_or(Time::min()));
  }
  return first;
}

int Order(const FailedWorker& worker, const std::vector<api::RestartRule>& rules, Time disruption) {
  const int64_t code = worker.failure.exit_code;
  if (worker.pod && worker.pod->disrupted) return 0;
  if (worker.disrupted) return 5;
  if (Permanent(code, rules) && worker.failure.time.value_or(Time::max()) < disruption) return -1;
  if (Permanent(code, rules)) return 1;
  if (code == 73) return 2;
  if (code == 71) return 3;
  if (code == 75) return 6;
  if (code == 69) return 7;
  return worker.failure.signal != 0 ? 5 : 4;
}

}  // namespace

bool IsFailure(const PodRecord& pod) {
  return pod.end->exit_code != 0 || pod.end->reason == "Evicted" || pod.disrupted;
}

std::vector<FailedWorker> FailedWorkers(const Observed& observed, Time now) {
  std::vector<FailedWorker> failed;
  for (size_t i = 0; i < observed.current.size(); ++i) {
    const Pod& pod = observed.current[i];
    if (pod && pod->end && IsFailure(*pod)) failed.push_back(FromEnd(observed, static_cast<int64_t>(i), pod, now));
  }
  for (const int64_t worker : observed.missing) failed.push_back(Vanished(observed, worker, now));
  return failed;
}

const FailedWorker& Culprit(const std::vector<FailedWorker>& workers, const std::vector<api::RestartRule>& rules) {
  const Time disruption = FirstDisruption(workers);
  const auto key = [&](const FailedWorker& w) {
    return std::tuple(Order(w, rules, disruption), w.failure.time.value_or(Time::max()), w.worker);
  };
  return *std::min_element(workers.begin(), workers.end(),
                           [&](const FailedWorker& a, const FailedWorker& b) { return key(a) < key(b); });
}

int64_t DurableStep(const Observed& observed) {
  int64_t step = 0;
  for (const Pod& pod : observed.current) {
    if (pod && pod->end) step = std::max(step, pod->end->words.checkpoint_step);
  }
  return step;
}

}  // namespace trainyard::reconcile
