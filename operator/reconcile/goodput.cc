// Each second from a job's creation on is counted once, as what the status said when it went by. The status is written
// when something changes, but for counts of workers, which wait for up to half of the attempt's age and ten seconds
// (status_writes.h), and the creation of the pods, which waits for five: so much of the time from the last worker's
// node to its start may count as the queue's, or as a restart's. How a stretch of training is to be called, new steps,
// replayed ones or none, is known only at the next step that rank 0 tells, or at the attempt's end, so it waits for
// that.
#include <algorithm>

#include "operator/reconcile/conditions.h"
#include "operator/reconcile/policies.h"

namespace trainyard::reconcile {
namespace {

enum class Stage { kNotCounted, kQueue, kStartup, kTraining, kRestart };

Stage StageOf(const api::JobStatus& status) {
  if (IsTrue(status, kSuspendedCondition) || status.phase == api::kSuspending) return Stage::kNotCounted;
  const bool failed = status.last_failure && status.last_failure->attempt == status.attempt;
  if (failed || (IsTrue(status, kRestartingCondition) && status.workers.created == 0)) return Stage::kRestart;
  if (!IsTrue(status, kScheduledCondition)) return Stage::kQueue;
  return IsTrue(status, kRunningCondition) ? Stage::kTraining : Stage::kStartup;
}

int64_t WholeSeconds(Time from, Time to) {
  return (std::chrono::floor<std::chrono::seconds>(to) - std::chrono::floor<std::chrono::seconds>(from)).count();
}

// The stretch between two writes in which all workers ran.
class Stretch {
 public:
  Stretch(const api::JobStatus& before, api::JobStatus& after, Time since, int64_t seconds)
      : before_(before), after_(after), goodput_(after.goodput), since_(since), seconds_(seconds) {}

  // Whether it is known what it was.
  bool Account() {
    const std::optional<int64_t> step = ToldStep();
    const bool first = !before_.goodput.step;
    if (first && !HasTrained() && (step || Ends())) {
      goodput_.lost_seconds.startup += seconds_;  // it loads, or does its first step
      return true;
    }
    if (step && (first || *step > *before_.goodput.step)) {
      if (first) CountStartup();
      CountSteps(*step);
      return true;
    }
    if (!Ends()) return false;
    const int64_t idle = std::min(seconds_, Idle());
    if (idle > 0) goodput_.lost_seconds.stall = goodput_.lost_seconds.stall.value_or(0) + idle;
    goodput_.training_seconds += seconds_ - idle;
    return true;
  }

 private:
  bool Ends() const {
    return after_.attempt != before_.attempt || IsFinished(after_) || StageOf(after_) != Stage::kTraining;
  }
  // Whether this attempt has done a step; what does not say how it started is taken to train as it runs.
  bool HasTrained() const { return Startup().first_step || !Startup().rendezvous; }
  // Of the attempt that the stretch is in.
  const api::Startup& Startup() const { return after_.attempt == before_.attempt ? after_.startup : before_.startup; }

  // Nothing: nobody has told one since.
  std::optional<int64_t> ToldStep() const {
    std::optional<int64_t> step;
    const std::optional<Time>&then = before_.progress.last_update, &now = after_.progress.last_update;
    if (now && (!then || WholeSeconds(*then, *now) != 0)) step = after_.progress.step;
    if (IsTrue(after_, kCompleteCondition)) step = std::max(step, after_.progress.step);
    if (after_.last_failure && after_.last_failure->attempt == before_.attempt)
      step = std::max(step, after_.last_failure->step);
    return step;
  }

  // Rank 0 answered, and nothing went on, as far as was heard.
  int64_t Idle() const {
    const api::Progress& progress = before_.progress;
    if (!before_.goodput.step || !progress.last_progress_seen || !progress.last_update) return 0;
    return std::max<int64_t>(0, WholeSeconds(*progress.last_progress_seen, *progress.last_update));
  }

  // Up to the end of the first step, which lies behind all that came before it.
  void CountStartup() {
    const api::Startup& startup = Startup();
    if (!startup.first_step || !before_.attempt_time) return;
    const double took = startup.queued.value_or(0) + startup.scheduled.value_or(0) + startup.pulled.value_or(0) +
                        startup.rendezvous.value_or(0) + *startup.first_step;
    const Time trained = After(*before_.attempt_time, std::min(took, 1e9));
    const int64_t starting = std::clamp<int64_t>(WholeSeconds(since_, trained), 0, seconds_);
    goodput_.lost_seconds.startup += starting;
    seconds_ -= starting;
  }

  // Steps up to the furthest of an earlier attempt are replayed; all took equally long.
  void CountSteps(int64_t step) {
    const int64_t from = before_.goodput.step.value_or(Startup().from_step.value_or(step));
    const int64_t furthest = before_.goodput.furthest_step.value_or(0);
    const int64_t steps = step - from, replayed = std::clamp<int64_t>(furthest - from, 0, std::max<int64_t>(steps, 0));
    const int64_t replay = steps > 0 ? static_cast<int64_t>(static_cast<double>(seconds_) *
                                                            static_cast<double>(replayed) / static_cast<double>(steps))
                                     : 0;
    goodput_.training_seconds += seconds_ - replay;
    goodput_.lost_seconds.replay = goodput_.lost_seconds.replay.value_or(0) + replay;
    goodput_.lost_seconds.stall = goodput_.lost_seconds.stall.value_or(0);
    goodput_.furthest_step = std::max(furthest, step);
    if (after_.attempt == before_.attempt) goodput_.step = step;
  }

  const api::JobStatus& before_;
  const api::JobStatus& after_;
  api::Goodput& goodput_;
  const Time since_;
  int64_t seconds_;
};

}  // namespace

void AccountTime(const TrainingJob& job, api::JobStatus& after, Time now) {
  const api::JobStatus& before = job.status;
  if (IsFinished(before)) return;
  if (!before.goodput.as_of && before.attempt > 0) {
    // Another operator, which kept no account, began it: nobody knows where the time went.
    after.goodput.as_of = std::chrono::floor<std::chrono::seconds>(now);
    return;
  }
  const Time since = before.goodput.as_of.value_or(job.created.value_or(now));
  // Of a clock that was set back, or another operator's, nothing is counted twice.
  const int64_t seconds = WholeSeconds(since, now);
  if (seconds < 0) return;
  api::LostSeconds& lost = after.goodput.lost_seconds;
  bool known = true;
  switch (StageOf(before)) {
    case Stage::kNotCounted:
      break;
    case Stage::kQueue:
      lost.queue += seconds;
      break;
    case Stage::kStartup:
      lost.startup += seconds;
      break;
    case Stage::kRestart:
      lost.restart += seconds;
      break;
    case Stage::kTraining:
      known = Stretch(before, after, since, seconds).Account();
      break;
  }
  if (known) after.goodput.as_of = std::chrono::floor<std::chrono::seconds>(now);
}

}  // namespace trainyard::reconcile
