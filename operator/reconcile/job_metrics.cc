#include "operator/reconcile/job_metrics.h"

#include <algorithm>
#include <optional>
#include <set>
#include <string>

#include "operator/api/exit_reason.h"
#include "operator/reconcile/conditions.h"

namespace trainyard::reconcile {

namespace {

constexpr std::pair<const char*, std::optional<double> api::Startup::*> kStagesOfStartup[] = {
    {"queued", &api::Startup::queued},
    {"scheduled", &api::Startup::scheduled},
    {"pulled", &api::Startup::pulled},
    {"rendezvous", &api::Startup::rendezvous},
    {"first_step", &api::Startup::first_step}};

constexpr std::pair<const char*, int64_t (*)(const api::Goodput&)> kCausesOfTime[] = {
    {"training", [](const api::Goodput& g) { return g.training_seconds; }},
    {"queue", [](const api::Goodput& g) { return g.lost_seconds.queue; }},
    {"startup", [](const api::Goodput& g) { return g.lost_seconds.startup; }},
    {"replay", [](const api::Goodput& g) { return g.lost_seconds.replay.value_or(0); }},
    {"stall", [](const api::Goodput& g) { return g.lost_seconds.stall.value_or(0); }},
    {"restart", [](const api::Goodput& g) { return g.lost_seconds.restart; }}};

// Why it failed for good. An older attempt's culprit is not to blame: a deadline of the whole job may be.
std::string ReasonOfEnd(const api::JobStatus& status) {
  if (status.last_failure && status.last_failure->attempt == status.attempt) return status.last_failure->reason;
  const api::Condition* failed = FindCondition(status, kFailedCondition);
  return failed ? failed->reason : "";
}

// Reasons that this operator, a kubelet and our trainer give: a worker's last words may name any, and each would be a
// series of its own.
std::string LabelOf(const std::string& reason) {
  static const std::set<std::string> known = [] {
    std::set<std::string> all = {"DisruptionTarget",
                                 "PodDeleted",
                                 "PodVanished",
                                 "PodFailed",
                                 "OOMKilled",
                                 "Evicted",
                                 "DeadlineExceeded",
                                 "ContainerCannotRun",
                                 "StartError",
                                 "ContainerStatusUnknown",
                                 "CreateContainerError",
                                 "CreateContainerConfigError",
                                 "NodeLost",
                                 "NodeShutdown",
                                 "NodeRestarted",
                                 "NodeAffinity",
                                 "Terminated",
                                 "UnexpectedAdmissionError",
                                 "Preempting",
                                 "OutOfcpu",
                                 "OutOfmemory",
                                 "OutOfpods",
                                 "MaxRestarts",
                                 "SameStepLimit",
                                 "ScheduleDeadlineExceeded",
                                 "StartDeadlineExceeded"};
    for (int64_t code = 0; code <= 255; ++code) {
      all.insert(ExitReason(code));
      all.insert(ForeignExitReason(code));
    }
    return all;
  }();
  return reason.empty() || known.contains(reason) ? reason : "Other";
}

}  // namespace

void JobMetrics::Count(const api::JobStatus& before, const api::JobStatus& after) {
  const bool same = before.attempt == after.attempt;
  for (size_t i = 0; i < kStages; ++i) {
    const auto stage = kStagesOfStartup[i].second;
    const std::optional<double>& seconds = after.startup.*stage;
    if (seconds && !(same && before.startup.*stage)) startup_[i].Observe(*seconds);
  }
  const MutexLock lock(mutex_);
  for (size_t i = 0; i < kCauses; ++i) {
    const auto seconds = kCausesOfTime[i].second;
    goodput_[i] += std::max<int64_t>(0, seconds(after.goodput) - seconds(before.goodput));
  }
  if (after.phase == api::kFailed && before.phase != api::kFailed) {
    ++failures_[LabelOf(ReasonOfEnd(after))];
  }
  if (after.restarts.total <= before.restarts.total) return;
  const bool charged = after.restarts.charged > before.restarts.charged;
  ++restarts_[{LabelOf(after.last_failure ? after.last_failure->reason : ""), charged}];
}

std::vector<std::pair<const char*, HistogramReading>> JobMetrics::startup() const {
  std::vector<std::pair<const char*, HistogramReading>> stages;
  for (size_t i = 0; i < kStages; ++i) stages.emplace_back(kStagesOfStartup[i].first, startup_[i].Read());
  return stages;
}

std::vector<std::pair<const char*, int64_t>> JobMetrics::goodput() const {
  const MutexLock lock(mutex_);
  std::vector<std::pair<const char*, int64_t>> causes;
  for (size_t i = 0; i < kCauses; ++i) causes.emplace_back(kCausesOfTime[i].first, goodput_[i]);
  return causes;
}

std::map<std::pair<std::string, bool>, int64_t> JobMetrics::restarts() const {
  const MutexLock lock(mutex_);
  return restarts_;
}

std::map<std::string, int64_t> JobMetrics::failures() const {
  const MutexLock lock(mutex_);
  return failures_;
}

}  // namespace trainyard::reconcile
