#include "tests/sim/reports.h"

#include <algorithm>

namespace trainyard::sim {

namespace {

constexpr double kSilenceSeconds = 60, kWrongClockSeconds = -100000;

}  // namespace

double Reports::Stood(const std::string& job_uid, int64_t attempt, Time since) const {
  const auto found = answers_.find({job_uid, attempt});
  double longest = 0;
  if (found == answers_.end()) return longest;
  for (const Answer& answer : found->second) {
    if (answer.time >= since) longest = std::max(longest, answer.stood);
  }
  return longest;
}

std::optional<reconcile::Report> Reports::Get(const std::string& job_uid) const {
  // Addresses are reused: what answers may be an attempt of before.
  const auto& from = dice_.Chance(0.1) ? before_ : newest_;
  const auto found = from.find(job_uid);
  return found == from.end() ? std::nullopt : std::optional(found->second);
}

std::optional<reconcile::Report> Reports::Poll(const std::string& job_uid) {
  int64_t attempt = 0;
  const Run* run = training_.NewestRun(job_uid, attempt);
  if (!run || run->fenced_off || !training_.ImageOf(job_uid).ours || dice_.Chance(0.3)) return std::nullopt;
  // A network that is cut for minutes.
  Time& unreachable_until = unreachable_until_[job_uid];
  if (dice_.Chance(0.002)) unreachable_until = After(clock_.Now(), dice_.Between(10, 200));
  if (clock_.Now() < unreachable_until) return std::nullopt;
  std::vector<Answer>& answers = answers_[{job_uid, attempt}];
  Answer answer{.time = clock_.Now(), .last_progress = run->last_progress};
  if (!answers.empty() && answers.back().last_progress == run->last_progress) {
    const double gap = SecondsBetween(answers.back().time, answer.time);
    answer.stood = answers.back().stood + (gap > kSilenceSeconds ? 0 : gap);
  }
  answers.push_back(answer);
  reconcile::Report report;
  // Nodes' clocks are wrong.
  report.progress.last_progress = After(run->last_progress, kWrongClockSeconds);
  report.job_uid = job_uid;
  report.attempt = attempt;
  report.progress.last_update = clock_.Now();
  if (training_.ImageOf(job_uid).knows_steps) {
    report.startup.rendezvous = 1;
    report.startup.from_step = run->first_step;
    if (run->step > run->first_step) report.startup.first_step = 2;
    report.progress.step = run->step;
    said_.insert({job_uid, attempt, run->step});
    report.progress.total_steps = training_.ImageOf(job_uid).steps;
  }
  if (const int64_t step = training_.Committed(job_uid); step > 0) report.checkpoint.step = step;
  if (const auto found = newest_.find(job_uid); found != newest_.end() && found->second.attempt != attempt)
    before_[job_uid] = found->second;
  newest_[job_uid] = report;
  return report;
}

}  // namespace trainyard::sim
