#include "operator/reconcile/progress.h"

#include <algorithm>

#include "operator/reconcile/culprit.h"
#include "operator/reconcile/policies.h"

namespace trainyard::reconcile {
namespace {

// A success is kept when it is seen: the pod may go before the others have ended.
void CountWorkers(const Observed& observed, api::Workers& workers) {
  const int64_t created = workers.created;
  workers = {};
  workers.desired = static_cast<int64_t>(observed.current.size());
  IndexSet done = observed.done;
  for (size_t i = 0; i < observed.current.size(); ++i) {
    const Pod& pod = observed.current[i];
    if (!pod || done.contains(static_cast<int64_t>(i))) continue;
    if (!pod->end) {
      ++workers.active;
      if (pod->ready) ++workers.ready;
    } else if (IsFailure(*pod)) {
      ++workers.failed;
    } else {
      done.insert(static_cast<int64_t>(i));
    }
  }
  workers.succeeded = static_cast<int64_t>(done.size());
  workers.done = FormatIndexSet(done);
  workers.created = std::max(created, workers.active + workers.failed + workers.succeeded);
}

// Since when there is no progress, by the operator's clock, and without the time in which nobody answered. Two clocks
// are never compared: the trainer's is only asked whether it moved.
void DateProgress(const api::Progress& known, double silence, api::Progress& next) {
  if (!next.last_progress) return;
  next.last_progress_seen = next.last_update;
  if (!known.last_progress || !known.last_progress_seen || !known.last_update ||
      !IsSameSecond(*known.last_progress, *next.last_progress))
    return;
  const double gap = SecondsBetween(*known.last_update, *next.last_update);
  // A clock that was set back takes the stamp with it: what had been still for ten minutes still has.
  next.last_progress_seen = After(*known.last_progress_seen, gap > silence || gap < 0 ? gap : 0);
}

// Whether the status takes the answer: each now and then, and the last step of all at once.
bool IsTaken(const Report& report, const api::Progress& known, double interval_seconds, Time now) {
  const std::optional<int64_t>& step = report.progress.step;
  if (!known.last_update) return true;
  const double age = SecondsBetween(*known.last_update, now);
  // A stamp of the future is one of another clock, or of ours before it was set back: nobody waits for that.
  return age >= interval_seconds || age < -interval_seconds ||
         (step && step == report.progress.total_steps && step != known.step);
}

void TakeReport(const Observed& observed, api::JobStatus& status, Time now) {
  const Report* report = CurrentReport(observed);
  if (!report) return;
  // Nothing newer may come of an attempt that ends.
  const bool last =
      (report->progress.step != status.progress.step || report->checkpoint.step > status.checkpoint.step) &&
      std::any_of(observed.current.begin(), observed.current.end(), [](const Pod& pod) { return pod && pod->end; });
  if (!last && !IsTaken(*report, status.progress, observed.progress_interval_seconds, now)) return;
  api::Progress next = report->progress;
  DateProgress(status.progress, SilenceSeconds(observed), next);
  status.progress = next;
  if (report->checkpoint.step > status.checkpoint.step) status.checkpoint = report->checkpoint;
}

}  // namespace

const Report* CurrentReport(const Observed& observed) {
  const std::optional<Report>& report = observed.report;
  const bool ours = report && report->job_uid == observed.job.uid && report->attempt == observed.job.status.attempt;
  return ours ? &*report : nullptr;
}

bool IsNews(const Report& report, const api::JobStatus& status, double progress_interval_seconds, Time now) {
  const api::Startup &told = report.startup, &known = status.startup;
  return IsTaken(report, status.progress, progress_interval_seconds, now) || (told.rendezvous && !known.rendezvous) ||
         (told.first_step && !known.first_step) || (told.from_step && !known.from_step);
}

Plan StatusFromPods(const Observed& observed, Time now) {
  Plan plan;
  plan.status = observed.job.status;
  plan.status.observed_generation = observed.job.generation;
  CountWorkers(observed, plan.status.workers);
  TakeReport(observed, plan.status, now);
  MeasureStartup(observed, plan.status);
  // The highest of what rank 0 answered, what any worker left behind, and what was known. All lie in one directory.
  if (const std::optional<int64_t> durable = DurableStep(observed); durable > plan.status.checkpoint.step) {
    plan.status.checkpoint = {
        .step = durable, .time = std::nullopt, .path = plan.status.checkpoint.path, .bytes = std::nullopt};
  }
  return plan;
}

}  // namespace trainyard::reconcile
