#include <algorithm>

#include "operator/reconcile/culprit.h"
#include "operator/reconcile/policies.h"

namespace trainyard::reconcile {
namespace {

void CountWorkers(const Observed& observed, api::Workers& workers) {
  const int64_t created = workers.created;
  workers = {.desired = observed.job.spec.workers};
  int64_t exist = 0;
  for (const Pod& pod : observed.current) {
    if (!pod) continue;
    ++exist;
    if (!pod->end) {
      ++workers.active;
      if (pod->ready) ++workers.ready;
    } else {
      ++(IsFailure(*pod) ? workers.failed : workers.succeeded);
    }
  }
  workers.created = std::max(created, exist);
}

void TakeReport(const Observed& observed, api::JobStatus& status, Time now) {
  const std::optional<Report>& report = observed.report;
  if (!report || report->job_uid != observed.job.uid || report->attempt != status.attempt) return;
  const bool first = !status.progress.last_update;
  const bool due = first || SecondsBetween(*status.progress.last_update, now) >= observed.progress_interval_seconds;
  const bool complete = report->progress.total_steps > 0 && report->progress.step == report->progress.total_steps &&
                        status.progress.step != report->progress.step;
  if (due || complete) status.progress = report->progress;
  if ((due || complete) && report->checkpoint.step > status.checkpoint.step) status.checkpoint = report->checkpoint;
}

}  // namespace

Plan StatusFromPods(const Observed& observed, Time now) {
  Plan plan;
  plan.status = observed.job.status;
  plan.status.observed_generation = observed.job.generation;
  CountWorkers(observed, plan.status.workers);
  TakeReport(observed, plan.status, now);
  // The highest of what rank 0 answered, what any worker left behind, and what was known.
  if (const int64_t durable = DurableStep(observed); durable > plan.status.checkpoint.step) {
    plan.status.checkpoint = {.step = durable, .time = std::nullopt, .path = plan.status.checkpoint.path, .bytes = 0};
  }
  return plan;
}

}  // namespace trainyard::reconcile
