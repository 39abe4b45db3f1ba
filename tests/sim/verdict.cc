#include "tests/sim/verdict.h"

#include <algorithm>
#include <tuple>

namespace trainyard::sim {
namespace {

// What the rules say of a code, the job's own before the ones that always stand.
ExitRule RuleFor(const JobView& job, int64_t code) {
  for (const ExitRule& rule : job.rules) {
    if (rule.code == code) return rule;
  }
  static const std::set<int64_t> kFail = {2, 64, 65, 72, 126, 127};
  return {.code = code, .fail = kFail.contains(code), .free = code == 75};
}

// What a Fail rule names, anywhere: a cause that no restart mends.
bool Permanent(const JobView& job, int64_t code) { return RuleFor(job, code).fail; }

// An end at the same second as the order to end may follow it.
bool MayFollow(const std::optional<Time>& end, bool told, const std::optional<Time>& when) {
  return told && !(end && when && *end < *when);
}

// A permanent cause that was there before anyone told the pod to go stays one.
bool WasToldTo(const JobView& job, const PodView& pod) {
  const auto before = [&](bool told, const std::optional<Time>& when) {
    return !told || (pod.end->time && when && *pod.end->time < *when);
  };
  const bool by_itself = Permanent(job, pod.end->code) && !pod.forced() && before(pod.disrupted, pod.disrupted_at) &&
                         before(pod.deleting, pod.deleted_at);
  return (pod.disrupted || pod.deleting) && !by_itself;
}

std::string ReasonOf(const PodView& pod, bool told) {
  if (told) return pod.disrupted ? "DisruptionTarget" : "PodDeleted";
  const ContainerEnd& end = *pod.end;
  if (!end.reason.empty() && end.reason != "Error" && end.reason != "Completed") return end.reason;
  if (!end.said_reason.empty()) return end.said_reason;
  if (end.code == kNoCode) return "PodFailed";
  if (end.code == 126) return "CommandNotExecutable";
  if (end.code == 127) return "CommandNotFound";
  if (end.code > 128 && end.code <= 192) return "Signal" + std::to_string(end.code - 128);
  return "ExitCode" + std::to_string(end.code);
}

Casualty OfPod(const JobView& job, int64_t worker, const PodView& pod, Time undated) {
  const bool told = WasToldTo(job, pod);
  Time time = pod.end->time.value_or(undated);
  if (pod.deleted_at) time = std::min(time, *pod.deleted_at);
  return {.worker = worker,
          .pod = pod.name,
          .reason = ReasonOf(pod, told),
          .code = pod.end->code,
          .told_to = told,
          .target = told && pod.disrupted,
          .forced = pod.forced(),
          .time = time,
          .target_time = pod.disrupted_at.value_or(Time::min()),
          .step = pod.end->step};
}

// DisruptionTarget, but for a permanent cause of before; permanent; hang; out of memory; gone without a word; any
// other end of one's own or by someone else; a stop; a peer's end.
int Rank(const JobView& job, const Casualty& casualty, Time first_target) {
  if (casualty.vanished) return 5;
  if (casualty.target) return 1;
  if (casualty.forced) return 5;
  if (casualty.told_to) return 6;
  if (Permanent(job, *casualty.code)) return casualty.time < first_target ? 0 : 2;
  if (*casualty.code == 73) return 3;
  if (*casualty.code == 71 || casualty.reason == "OOMKilled") return 4;
  if (*casualty.code == 75) return 7;
  if (*casualty.code == 69) return 8;
  return 6;
}

}  // namespace

bool Succeeded(const PodView& pod) {
  return pod.end && pod.end->code == 0 && pod.end->reason != "Evicted" &&
         !MayFollow(pod.end->time, pod.disrupted, pod.disrupted_at) &&
         !MayFollow(pod.end->time, pod.deleting, pod.deleted_at);
}

bool IsOverdue(const JobView& job, const PodView& pod, Time now) {
  return pod.gone_by && !pod.end && SecondsBetween(*pod.gone_by, now) >= static_cast<double>(job.terminate_seconds);
}

std::vector<Casualty> Casualties(const JobView& job, const Attempt& pods, const Workers& lost, Time now) {
  std::vector<Casualty> out;
  // The status dates the one that was blamed at first.
  const auto undated = [&](const std::string& pod) {
    const bool known = job.culprit_attempt == job.attempt && job.culprit_pod == pod;
    return known ? job.culprit_time.value_or(now) : now;
  };
  for (int64_t worker = 0; worker < job.workers; ++worker) {
    if (job.done.contains(worker)) continue;
    if (const auto pod = pods.find(worker); pod != pods.end()) {
      if (pod->second.end && !Succeeded(pod->second))
        out.push_back(OfPod(job, worker, pod->second, undated(pod->second.name)));
      // Nobody can end it: its node is lost, or its kubelet cannot.
      if (IsOverdue(job, pod->second, now))
        out.push_back({.worker = worker,
                       .pod = pod->second.name,
                       .reason = pod->second.disrupted ? "DisruptionTarget" : "PodDeleted",
                       .told_to = true,
                       .target = pod->second.disrupted,
                       .forced = pod->second.forced(),
                       .time = pod->second.deleted_at.value_or(*pod->second.gone_by),
                       .target_time = pod->second.disrupted_at.value_or(Time::min())});
    } else if (lost.contains(worker)) {
      const std::string name = job.name + "-" + std::to_string(job.attempt) + "-" + std::to_string(worker);
      // How it had ended by itself stands in the status, if it was blamed at first.
      static const std::set<std::string> kTold = {"PodVanished", "PodDeleted", "DisruptionTarget"};
      if (job.culprit_attempt == job.attempt && job.culprit_pod == name && job.culprit_code &&
          !kTold.contains(job.culprit_reason)) {
        out.push_back({.worker = worker,
                       .pod = name,
                       .reason = job.culprit_reason,
                       .code = *job.culprit_code,
                       .time = undated(name),
                       .step = job.culprit_step});
        continue;
      }
      out.push_back({.worker = worker,
                     .pod = name,
                     .reason = "PodVanished",
                     .told_to = true,
                     .vanished = true,
                     .time = undated(name)});
    }
  }
  return out;
}

std::vector<Casualty> Going(const JobView& job, const Attempt& pods, Time now) {
  std::vector<Casualty> out;
  for (const auto& [worker, pod] : pods) {
    if (pod.end || !pod.deleting || IsOverdue(job, pod, now) || job.done.contains(worker)) continue;
    out.push_back({.worker = worker,
                   .pod = pod.name,
                   .reason = pod.disrupted ? "DisruptionTarget" : "PodDeleted",
                   .told_to = true,
                   .target = pod.disrupted,
                   .forced = pod.forced(),
                   .time = pod.deleted_at ? *pod.deleted_at : pod.gone_by.value_or(now),
                   .target_time = pod.disrupted_at.value_or(Time::min())});
  }
  return out;
}

Verdict Judge(const JobView& job, const std::vector<Casualty>& casualties) {
  Time first_target = Time::max();
  for (const Casualty& casualty : casualties) {
    if (casualty.target) first_target = std::min(first_target, casualty.target_time);
  }
  const auto key = [&](const Casualty& c) { return std::tuple(Rank(job, c, first_target), c.time, c.worker); };
  Verdict verdict{.culprit = *std::min_element(casualties.begin(), casualties.end(),
                                               [&](const Casualty& a, const Casualty& b) { return key(a) < key(b); })};
  if (verdict.culprit.told_to) {
    verdict.free = true;
    return verdict;
  }
  const ExitRule rule = RuleFor(job, *verdict.culprit.code);
  verdict.fail = rule.fail;
  verdict.free = rule.free;
  return verdict;
}

}  // namespace trainyard::sim
