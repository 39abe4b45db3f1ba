#include "tests/sim/reports.h"

namespace trainyard::sim {

std::optional<reconcile::Report> Reports::Get(const std::string& job_uid) const {
  // Addresses are reused: what answers may be an attempt of before.
  const auto& from = dice_.Chance(0.1) ? before_ : newest_;
  const auto found = from.find(job_uid);
  return found == from.end() ? std::nullopt : std::optional(found->second);
}

bool Reports::Poll(const std::string& job_uid) {
  int64_t attempt = 0;
  const Run* run = training_.NewestRun(job_uid, attempt);
  if (!run || run->fenced_off || !training_.ImageOf(job_uid).ours || dice_.Chance(0.3)) return false;
  reconcile::Report report;
  report.job_uid = job_uid;
  report.attempt = attempt;
  report.progress.last_update = clock_.Now();
  if (training_.ImageOf(job_uid).knows_steps) {
    report.progress.step = run->step;
    said_.insert({job_uid, attempt, run->step});
    report.progress.total_steps = training_.ImageOf(job_uid).steps;
  }
  if (const int64_t step = training_.Committed(job_uid); step > 0) report.checkpoint.step = step;
  if (const auto found = newest_.find(job_uid); found != newest_.end() && found->second.attempt != attempt)
    before_[job_uid] = found->second;
  newest_[job_uid] = report;
  return true;
}

}  // namespace trainyard::sim
