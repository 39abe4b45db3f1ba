#include "tests/sim/operator_process.h"

#include <unistd.h>

#include "operator/reconcile/progress.h"

namespace trainyard::sim {
namespace {

constexpr double kProgressSeconds = 10;

}  // namespace

OperatorProcess::OperatorProcess(std::string name, local::MemoryApi& api, const Mirror& mirror, VirtualClock& clock,
                                 Dice& dice, const Trouble& trouble, const reconcile::ReportSource& reports)
    : name_(std::move(name)),
      clock_(clock),
      dice_(dice),
      trouble_(trouble),
      client_(api, mirror, clock, dice, trouble, [this] { Pause(); }),
      queue_(clock),
      caches_(
          client_, clock, "", 1, [this](const std::string& key, double in) { queue_.AddAfter(key, in); }, {},
          [this](const std::string& key) { queue_.AddBehind(key); }),
      events_(client_, clock, "sim"),
      log_(STDERR_FILENO, Logger::Form::kText, LogLevel::kError),
      reconciler_(client_, clock, caches_, reports, events_, log_,
                  {.progress_interval_seconds = kProgressSeconds, .parallel_requests = 1}) {
  for (size_t i = 0; i < kWorkers; ++i) {
    Worker& worker = workers_[i];
    worker.task = std::make_unique<Task>([this, &worker] { Loop(worker); });
  }
}

void OperatorProcess::Pump(size_t which) {
  if (Frozen() || clock_.Now() < due_[which]) return;
  const double wait = caches_.reflectors()[which]->Pump(stop_);
  // A watch ends here once it has told what there is, and would then wait longer each time; without trouble it lives
  // on.
  due_[which] = After(clock_.Now(), trouble_.level > 0 ? wait : 0);
}

void OperatorProcess::Work(size_t which, bool leads) {
  Worker& worker = workers_[which];
  if (Frozen()) return;
  if (worker.idle) {
    const std::optional<Instant> due = queue_.NextDue();
    const bool work = queue_.depth() > 0 || (due && *due <= clock_.Steady());
    if (!leads || !work || !caches_.synced()) return;
  }
  running_ = which;
  worker.task->Resume();
  running_ = kNobody;
  if (worker.task->ended()) throw Crash{};
}

void OperatorProcess::Hear(const std::string& key, const reconcile::Report& report) {
  const auto record = caches_.jobs().Get(key);
  if (!record || record->job.uid != report.job_uid || record->job.status.attempt != report.attempt) return;
  if (reconcile::IsNews(report, record->job.status, kProgressSeconds, clock_.Now())) queue_.Add(key);
}

void OperatorProcess::Pause() {
  if (running_ == kNobody) return;  // a watch: what comes late is as good as what comes in between
  // Out of memory for minutes, a laptop's lid, a live migration: all of it stands still, and then goes on.
  if (dice_.Chance(trouble_.level * 0.02)) frozen_until_ = After(clock_.Now(), dice_.Between(1, 60));
  workers_[running_].task->Yield();
}

void OperatorProcess::Loop(Worker& worker) {
  for (;;) {
    const std::optional<std::string> key = queue_.TryGet();
    if (!key) {
      worker.task->Yield();
      continue;
    }
    worker.idle = false;
    worker.basis = {.pods = client_.seen(kube::kPods), .began = clock_.Now()};
    try {
      kube::Settle(queue_, *key, reconciler_.Reconcile(*key), log_);
    } catch (const std::exception& error) {
      defect_ = std::string("the operator threw: ") + error.what();
    }
    worker.idle = true;
    worker.task->Yield();
  }
}

}  // namespace trainyard::sim
