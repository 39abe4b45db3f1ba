// Observe, plan, apply, one status write.
#ifndef TRAINYARD_OPERATOR_RECONCILE_RECONCILER_H_
#define TRAINYARD_OPERATOR_RECONCILE_RECONCILER_H_

#include <map>
#include <optional>
#include <set>
#include <string>

#include "operator/kube/controller.h"
#include "operator/kube/events.h"
#include "operator/reconcile/apply.h"
#include "operator/reconcile/caches.h"
#include "operator/reconcile/job_metrics.h"
#include "operator/reconcile/long_turns.h"
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
  void CheckTemplate(Observed& observed);
  bool IsToBeAsked(const std::string& key);
  void DryRun(Observed& observed);
  bool WasChecked(const std::string& what);
  void NoteChecked(const std::string& what);
  // Says in the status, which is otherwise left alone, why nothing can be decided. kConflict, and kStopped: nothing is
  // to be said.
  kube::ReconcileResult SayUnseen(const TrainingJob& job, const Status& status);
  // Carries the plan out, and adds to its status what came of it. kConflict, and kStopped: nothing is to be said.
  Status Carry(const Observed& observed, Plan& plan, Time now);
  Problem Failed(const TrainingJob& job, const Status& status);
  void NoteSuccess(const std::string& key);
  // Writes the plan's status, if it is time, and sends its events.
  kube::ReconcileResult Tell(const TrainingJob& job, const Plan& plan, Time now);
  Status ConfirmStale(const Observed& observed);
  Status ConfirmMissing(Observed& observed);
  Status ConfirmAtRest(const Observed& observed);
  // Takes out of the plan what the namespace's pods may not be asked for now, and says why; else empty.
  std::string Withhold(const std::string& ns, Plan& plan);
  // `seconds`: that it took; nothing: nobody was asked after all.
  static void NoteAnswer(Unanswered& of, const std::string& ns, const Status& status, std::optional<double> seconds);
  // Since when this process knows of deletions (Observed::unproven).
  void WatchDeletions(Observed& observed);
  // And of a failed worker (Observed::failing_seconds).
  void WatchFailures(Observed& observed);
  // `answer`, or the job where its status is this one in spite of it.
  Result<kube::Json> AsWritten(const TrainingJob& job, const kube::Json& status, Result<kube::Json> answer);
  Status WriteStatus(const TrainingJob& job, api::JobStatus status, Time now);
  // Seconds since our last write of the job's status; nothing: there is none.
  std::optional<double> SinceWritten(const std::string& key);
  Status DeleteJob(const TrainingJob& job);
  bool CacheIsBehind(const std::string& key, const TrainingJob& job);

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
  Mutex mutex_;
  // Of our last status write of a job: what the cache must reach, unless the server's versions went back since.
  struct Written {
    uint64_t version = 0;
    int64_t rewinds = 0;
    Instant at{};
  };
  std::map<std::string, Written> written_ GUARDED_BY(mutex_);  // by key
  std::map<std::string, Instant> refused_ GUARDED_BY(mutex_);  // when it was asked about a refused template, by key
  std::map<std::string, std::map<std::string, Instant>> deletions_ GUARDED_BY(mutex_);  // by key and uid of the pod
  // The first failure of an attempt.
  struct Failing {
    std::string uid;  // the job's
    int64_t attempt = 0;
    Instant since{};
  };
  std::map<std::string, Failing> failures_ GUARDED_BY(mutex_);  // by key
  std::set<std::string> failing_ GUARDED_BY(mutex_);            // keys of jobs whose last pass failed, which was said
  std::set<std::string> checked_ GUARDED_BY(mutex_);  // templates that the server has found good, by namespace
};

}  // namespace trainyard::reconcile

#endif  // TRAINYARD_OPERATOR_RECONCILE_RECONCILER_H_
