#include "operator/reconcile/job_metrics.h"

#include <algorithm>
#include <optional>

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
    std::string reason = ReasonOfEnd(after);
    if (failures_.size() >= kMaxReasons && !failures_.contains(reason)) reason = "Other";
    ++failures_[reason];
  }
  if (after.restarts.total <= before.restarts.total) return;
  const bool charged = after.restarts.charged > before.restarts.charged;
  std::pair key{after.last_failure ? after.last_failure->reason : "", charged};
  if (restarts_.size() >= kMaxReasons && !restarts_.contains(key)) key.first = "Other";
  ++restarts_[key];
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
