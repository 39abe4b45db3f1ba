// Observe, plan, apply, one status write.
#ifndef TRAINYARD_OPERATOR_RECONCILE_RECONCILER_H_
#define TRAINYARD_OPERATOR_RECONCILE_RECONCILER_H_

#include <optional>
#include <set>
#include <string>

#include "operator/kube/controller.h"
#include "operator/kube/events.h"
#include "operator/reconcile/apply.h"
#include "operator/reconcile/caches.h"
#include "operator/reconcile/job_metrics.h"
#include "operator/reconcile/long_turns.h"
#include "operator/reconcile/own_writes.h"
#include "operator/reconcile/sightings.h"
#include "operator/reconcile/template_check.h"
#include "operator/reconcile/unanswered.h"

namespace trainyard::reconcile {

// Where rank 0's answers come from. Thread-safe.
class ReportSource {
 public:
  virtual ~ReportSource() = default;
  // The newest answer for the job of this uid, of any attempt; nothing when there is none.
  virtual std::optional<Report> Get(const std::string& job_uid) const = 0;
};

// Moves one TrainingJob one step closer to its spec. Level-triggered: safe to call any number of times,
// with any key, at any moment, with stale caches. Thread-safe for different keys at once.
class Reconciler {
 public:
  struct Options {
    double progress_interval_seconds = 10;
    int parallel_requests = 16;
  };
  // All references must outlive it.
  Reconciler(kube::Client& client, const Clock& clock, const Caches& caches, const ReportSource& reports,
             kube::EventRecorder& events, const Logger& log, Options options);

  // Of the jobs whose specs are too long to be kept a few at a time (long_turns.h): another comes again soon.
  kube::ReconcileResult Reconcile(const std::string& key);
  // Thread-safe.
  const JobMetrics& metrics() const { return metrics_; }

 private:
  void Forget(const std::string& key);
  kube::ReconcileResult Pass(const JobRecord& record);
  // Of a job whose spec is not kept.
  kube::ReconcileResult PassOfLong(const JobRecord& record);
  // `record` with what the cache has not kept. kConflict: the API has another spec by now.
  Result<JobRecord> FetchWhole(const JobRecord& record);
  Result<Observed> Observe(const JobRecord& record);
  // Says in the status, which is otherwise left alone, why nothing can be decided. kConflict, and kStopped: nothing is
  // to be said.
  kube::ReconcileResult SayUnseen(const TrainingJob& job, const Status& status);
  // Carries the plan out, and adds to its status what came of it. kConflict, and kStopped: nothing is to be said.
  Status Carry(const Observed& observed, Plan& plan, Time now);
  Problem Failed(const TrainingJob& job, const Status& status);
  void NoteSuccess(const std::string& key);
  // Writes the plan's status, if it is time, and sends its events.
  kube::ReconcileResult Tell(const TrainingJob& job, const Plan& plan, Time now);
  // Takes out of the plan what the namespace's pods may not be asked for now, and says why; else empty.
  std::string Withhold(const std::string& ns, Plan& plan);
  // `answer`, or the job where its status is this one in spite of it.
  Result<kube::Json> AsWritten(const TrainingJob& job, const kube::Json& status, Result<kube::Json> answer);
  Status WriteStatus(const TrainingJob& job, api::JobStatus status, Time now);
  Status DeleteJob(const TrainingJob& job);

  kube::Client& client_;
  const Clock& clock_;
  const Caches& caches_;
  const ReportSource& reports_;
  kube::EventRecorder& events_;
  const Logger& log_;
  const Options options_;
  Executor executor_;
  JobMetrics metrics_;
  Unanswered unanswered_, undeleted_, untold_;  // of creations, of deletions, and of writes of statuses
  LongTurns long_turns_;
  OwnWrites own_writes_;
  TemplateCheck template_check_;
  Sightings sightings_;
  Mutex mutex_;
  std::set<std::string> failing_ GUARDED_BY(mutex_);  // keys of jobs whose last pass failed, which was said
};

}  // namespace trainyard::reconcile

#endif  // TRAINYARD_OPERATOR_RECONCILE_RECONCILER_H_
