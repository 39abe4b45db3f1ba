#include "operator/reconcile/culprit.h"

#include <algorithm>
#include <tuple>

#include "operator/api/exit_reason.h"
#include "operator/api/labels.h"
#include "operator/reconcile/policies.h"

namespace trainyard::reconcile {
namespace {

constexpr char kDisrupted[] = "DisruptionTarget", kDeleted[] = "PodDeleted";

// The time that the status has kept of a failure that has none of its own: when it was first seen.
Time SeenFirst(const Observed& observed, const std::string& pod, Time now) {
  const std::optional<api::Failure>& known = observed.job.status.last_failure;
  const bool same = known && known->attempt == observed.job.status.attempt && known->pod == pod;
  return same ? known->time.value_or(now) : now;
}

// When the worker ended, or was told to by someone else: what it did then explains nothing. A pod that a kubelet
// rejected or evicted has no container to tell, and a node's clock may be ahead.
Time EndTime(const Observed& observed, const PodRecord& pod, Time now) {
  const bool told = pod.end->time && *pod.end->time <= now;
  const Time end = told ? *pod.end->time : SeenFirst(observed, pod.name, now);
  return pod.deleted_at ? std::min(end, *pod.deleted_at) : end;
}

// A kubelet's own word (OOMKilled, Evicted, ContainerCannotRun) knows more than a launcher could; only our trainer's
// codes have our meanings.
std::string ReasonOf(const PodRecord& pod, bool disrupted) {
  const PodEnd& end = *pod.end;
  if (disrupted) return pod.disrupted ? kDisrupted : kDeleted;
  if (!end.reason.empty() && end.reason != "Error" && end.reason != "Completed") return end.reason;
  if (!end.words.reason.empty()) return end.words.reason;
  return end.exit_code ? ForeignExitReason(*end.exit_code) : "PodFailed";
}

// What a foreign program printed last is no cause when a signal ended it, or it was told to stop.
std::string MessageOf(const PodRecord& pod, bool disrupted, int64_t signal) {
  const PodEnd& end = *pod.end;
  if (!end.init_container.empty())
    return "init container " + end.init_container + (end.words.message.empty() ? "" : ": " + end.words.message);
  if (disrupted && pod.disrupted && !pod.disruption.empty()) return pod.disruption;
  if (end.of_pod || end.words.from_launcher || (signal == 0 && !disrupted)) return end.words.message;
  return disrupted && pod.deleting ? "the pod was deleted by someone else" : "";
}

bool Permanent(int64_t code, const std::vector<api::RestartRule>& rules) {
  return std::any_of(rules.begin(), rules.end(), [&](const api::RestartRule& rule) {
    return rule.action == api::kFail &&
           std::find(rule.on_exit_codes.begin(), rule.on_exit_codes.end(), code) != rule.on_exit_codes.end();
  });
}

bool EndedBefore(const PodRecord& pod, const std::optional<Time>& when) {
  return when && pod.end->time && *pod.end->time < *when;
}

// Whether it was told to end. One with a permanent code that had ended before, and is drained or deleted as a failed
// pod, was not; what other codes say may come of a node's clock that is behind.
bool WasTold(const PodRecord& pod, const std::vector<api::RestartRule>& rules) {
  const bool by_itself = pod.end->exit_code && Permanent(*pod.end->exit_code, rules) && !pod.forced &&
                         (!pod.disrupted || EndedBefore(pod, pod.disrupted_at)) &&
                         (!pod.deleting || EndedBefore(pod, pod.deleted_at));
  return (pod.disrupted || pod.deleting) && !by_itself;
}

FailedWorker FromEnd(const Observed& observed, int64_t worker, const Pod& pod, Time now) {
  const PodEnd& end = *pod->end;
  const int64_t signal = end.signal != 0 ? end.signal : SignalOf(end.exit_code.value_or(0));
  FailedWorker failed;
  failed.worker = worker;
  failed.pod = pod;
  failed.disrupted = WasTold(*pod, api::RulesInForce(observed.job.spec.restart));
  failed.failure = {.attempt = observed.job.status.attempt,
                    .rank = end.words.rank.value_or(worker),
                    .pod = pod->name,
                    .node = pod->node,
                    .exit_code = end.exit_code,
                    .signal = signal > 0 ? std::optional(signal) : std::nullopt,
                    .reason = ReasonOf(*pod, failed.disrupted),
                    .step = end.words.step,
                    .message = MessageOf(*pod, failed.disrupted, signal),
                    .time = EndTime(observed, *pod, now),
                    .tail = end.words.tail};
  return failed;
}

// Someone else deletes its pod, which has not ended.
FailedWorker ToldToGo(const Observed& observed, int64_t worker, const Pod& pod, std::string message, Time now) {
  FailedWorker failed;
  failed.worker = worker;
  failed.pod = pod;
  failed.disrupted = true;
  failed.failure.attempt = observed.job.status.attempt;
  failed.failure.rank = worker;
  failed.failure.pod = pod->name;
  failed.failure.node = pod->node;
  failed.failure.reason = pod->disrupted ? kDisrupted : kDeleted;
  failed.failure.message = std::move(message);
  failed.failure.time = pod->deleted_at.value_or(std::min(pod->gone_by.value_or(now), now));
  return failed;
}

// Its node does not answer, or its kubelet cannot end it.
FailedWorker Lost(const Observed& observed, int64_t worker, const Pod& pod, Time now) {
  return ToldToGo(observed, worker, pod,
                  "it should have been gone by " + FormatTime(*pod->gone_by) + ", and did not end within " +
                      std::to_string(observed.job.spec.deadlines.terminate_seconds) +
                      " s more (spec.deadlines.terminateSeconds)",
                  now);
}

// It ends, within its grace.
FailedWorker Going(const Observed& observed, int64_t worker, const Pod& pod, Time now) {
  const bool known = pod->disrupted && !pod->disruption.empty();
  return ToldToGo(observed, worker, pod, known ? pod->disruption : "the pod is being deleted by someone else", now);
}

// Without a pod, unless the status has kept how it had ended by itself: a failed pod may be cleared away while the
// other workers' ends are awaited.
FailedWorker Vanished(const Observed& observed, int64_t worker, Time now) {
  const std::string name = api::PodName(observed.job.name, observed.job.status.attempt, worker);
  FailedWorker failed;
  failed.worker = worker;
  const std::optional<api::Failure>& known = observed.job.status.last_failure;
  if (known && known->attempt == observed.job.status.attempt && known->pod == name && known->exit_code &&
      known->reason != kDisrupted && known->reason != kDeleted) {
    failed.failure = *known;
    return failed;
  }
  failed.disrupted = true;
  failed.failure.attempt = observed.job.status.attempt;
  failed.failure.rank = worker;
  failed.failure.pod = name;
  failed.failure.reason = "PodVanished";
  failed.failure.message = "the pod was deleted and left nothing behind";
  failed.failure.time = SeenFirst(observed, failed.failure.pod, now);
  return failed;
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
  if (!worker.pod && worker.disrupted) return 4;
  if (worker.pod && worker.pod->disrupted && worker.disrupted) return 0;
  // A forced deletion follows one whose time it has overwritten: as with a pod that is gone, its peers may have ended
  // later.
  if (worker.pod && worker.pod->forced) return 4;
  if (worker.disrupted) return 5;
  const std::optional<int64_t>& code = worker.failure.exit_code;
  if (code && Permanent(*code, rules)) return worker.failure.time.value_or(Time::max()) < disruption ? -1 : 1;
  if (code == 73) return 2;
  if (code == 71 || worker.failure.reason == "OOMKilled") return 3;
  if (code == 75) return 6;
  if (code == 69) return 7;
  return 5;
}

}  // namespace

bool IsFailure(const PodRecord& pod) {
  if (pod.end->exit_code != 0 || pod.end->of_pod) return true;
  // Times of the API are whole seconds: who ended within the same one may well have been told to.
  return (pod.disrupted && !EndedBefore(pod, pod.disrupted_at)) || (pod.deleting && !EndedBefore(pod, pod.deleted_at));
}

std::vector<FailedWorker> FailedWorkers(const Observed& observed, Time now) {
  std::vector<FailedWorker> failed;
  for (size_t i = 0; i < observed.current.size(); ++i) {
    const Pod& pod = observed.current[i];
    if (observed.done.contains(static_cast<int64_t>(i))) continue;
    if (pod && pod->end && IsFailure(*pod)) failed.push_back(FromEnd(observed, static_cast<int64_t>(i), pod, now));
    if (pod && IsLost(observed, *pod, now)) failed.push_back(Lost(observed, static_cast<int64_t>(i), pod, now));
  }
  for (const int64_t worker : observed.missing) failed.push_back(Vanished(observed, worker, now));
  return failed;
}

std::vector<FailedWorker> Suspects(const Observed& observed, std::vector<FailedWorker> failed, Time now) {
  for (size_t i = 0; i < observed.current.size(); ++i) {
    const Pod& pod = observed.current[i];
    const auto worker = static_cast<int64_t>(i);
    if (pod && pod->deleting && !pod->end && !IsLost(observed, *pod, now) && !observed.done.contains(worker))
      failed.push_back(Going(observed, worker, pod, now));
  }
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

std::optional<int64_t> DurableStep(const Observed& observed) {
  std::optional<int64_t> step;
  const auto hear = [&](const Pod& pod) {
    if (pod && pod->end) step = std::max(step, pod->end->words.checkpoint_step);
  };
  for (const Pod& pod : observed.current) hear(pod);
  if (observed.job.spec.suspend) {
    for (const std::vector<Pod>* pods : {&observed.stale, &observed.spent}) {
      for (const Pod& pod : *pods) {
        if (pod->attempt == observed.job.status.attempt - 1) hear(pod);
      }
    }
  }
  return step;
}

}  // namespace trainyard::reconcile
