#include "operator/reconcile/reconciler.h"

#include <algorithm>

#include "operator/api/json.h"
#include "operator/base/json_access.h"
#include "operator/reconcile/conditions.h"
#include "operator/reconcile/confirm.h"
#include "operator/reconcile/follow_master.h"
#include "operator/reconcile/policies.h"
#include "operator/reconcile/status_writes.h"

namespace trainyard::reconcile {
namespace {

// A failure's words may differ each time, and each write wakes the job: others than those in the status are written so
// often at most.
constexpr double kSameWordsSeconds = 60;

// What cannot be seen is looked for again so soon at the latest: nothing may tell that it has changed.
constexpr double kUnseenSeconds = 60;
// While a namespace may not be asked (unanswered.h).
constexpr double kAskAgainSeconds = 5;
// While other workers are busy with jobs whose specs are not kept.
constexpr double kLongAgainSeconds = 0.2;
// Between two turns of deletions: a watch gets that time to tell what the last one has deleted.
constexpr double kBetweenTurnsSeconds = 0.2;

// After a failure: when the job is looked at again even if its retries come later.
double AtLatest(const std::optional<double>& due) { return std::min(due.value_or(kUnseenSeconds), kUnseenSeconds); }

// Says in WorkersReady what the job cannot get on for. Where that stands for the workers that run, or ran, an event
// says so, once.
void NoteProblem(const TrainingJob& job, const Problem& problem, Plan& plan, Time now) {
  const api::Condition* before = FindCondition(job.status, kWorkersReadyCondition);
  const bool taken = IsTrue(plan.status, kRunningCondition) || IsFinished(plan.status);
  const bool news = taken ? problem.news : !before || before->reason != problem.reason;
  if (!taken)
    SetCondition(plan.status, kWorkersReadyCondition, false, problem.reason, problem.message, now, job.generation);
  std::erase_if(plan.events, [](const JobEvent& event) { return event.of_deletes; });
  if (news)
    plan.events.push_back({.type = "Warning", .reason = problem.reason, .message = problem.message, .once = taken});
  // What failed, and was not refused, has the queue's backoff.
  if (problem.retry_seconds > 0) plan.RequeueIn(problem.retry_seconds);
}

// What an earlier pass could not do, and this one did, or had not to do.
void RetractProblem(const TrainingJob& job, Plan& plan, Time now) {
  const api::Condition* said = FindCondition(plan.status, kWorkersReadyCondition);
  if (said && IsProblem(said->reason) && !HandsOff(job) && !IsFinished(plan.status))
    SetCondition(plan.status, kWorkersReadyCondition, false, "Waiting", "", now, job.generation);
}

}  // namespace

Reconciler::Reconciler(kube::Client& client, const Clock& clock, const Caches& caches, const ReportSource& reports,
                       kube::EventRecorder& events, const Logger& log, Options options)
    : client_(client),
      clock_(clock),
      caches_(caches),
      reports_(reports),
      events_(events),
      log_(log),
      options_(options),
      executor_(client, clock, options.parallel_requests),
      unanswered_(clock),
      undeleted_(clock),
      untold_(clock),
      own_writes_(clock),
      template_check_(client, clock, unanswered_),
      sightings_(clock) {}

kube::ReconcileResult Reconciler::Reconcile(const std::string& key) {
  const JobStore::Pointer record = caches_.jobs().Get(key);
  if (!record) {
    Forget(key);
    return {};
  }
  if (own_writes_.IsAhead(key, record->job.resource_version, caches_.job_rewinds())) return {Status::Ok(), 1.0};
  return record->apart ? PassOfLong(*record) : Pass(*record);
}

void Reconciler::Forget(const std::string& key) {
  executor_.Forget(key);
  own_writes_.Forget(key);
  template_check_.Forget(key);
  sightings_.Forget(key);
  NoteSuccess(key);
}

kube::ReconcileResult Reconciler::PassOfLong(const JobRecord& record) {
  const LongTurns::Turn turn(long_turns_, record.job.ns);
  if (!turn.mine()) return {Status::Ok(), kLongAgainSeconds};
  // Of a spec that is wrong nothing will be made; but what an attempt that runs was made from is compared with it.
  const bool never_made = !record.errors.empty() && record.job.status.attempt == 0;
  if (never_made || HandsOff(record.job)) return Pass(record);
  const Result<JobRecord> whole = FetchWhole(record);
  return whole.ok() ? Pass(*whole) : SayUnseen(record.job, whole.status());
}

Result<JobRecord> Reconciler::FetchWhole(const JobRecord& record) {
  const TrainingJob& job = record.job;
  const Result<Json> live = client_.Get(kube::kTrainingJobs, job.ns, job.name, FieldsOfWhole());
  if (!live.ok()) return live.status().With("read the job's spec");
  JobRecord now = WholeFromApi(*live);
  if (now.job.uid != job.uid || now.job.generation != job.generation || IsFinished(now.job.status))
    return Status(Code::kConflict, "the job has moved on: its cached copy is old");
  JobRecord whole = record;
  whole.pod_template = std::move(now.pod_template);
  whole.config = std::move(now.config);
  return whole;
}

kube::ReconcileResult Reconciler::Pass(const JobRecord& record) {
  const TrainingJob& job = record.job;
  Result<Observed> observed = Observe(record);
  if (!observed.ok()) return SayUnseen(job, observed.status());
  const Time now = clock_.Now();
  Plan plan = MakePlan(*observed, now);
  const Status carried = Carry(*observed, plan, now);
  if (carried.Is(Code::kConflict) || carried.Is(Code::kStopped)) return {carried, {}};
  kube::ReconcileResult told = Tell(job, plan, now);
  if (carried.ok()) return told;
  // What was due stays due, and what fails wakes nobody when it is over.
  return {carried, AtLatest(told.requeue_after_seconds)};
}

kube::ReconcileResult Reconciler::SayUnseen(const TrainingJob& job, const Status& status) {
  if (status.Is(Code::kConflict) || status.Is(Code::kStopped)) return {status, {}};
  const Time now = clock_.Now();
  Plan plan;
  plan.status = job.status;
  NoteProblem(job, Failed(job, status), plan, now);
  (void)Tell(job, plan, now);
  return {status, kUnseenSeconds};
}

Status Reconciler::Carry(const Observed& observed, Plan& plan, Time now) {
  const TrainingJob& job = observed.job;
  Outcome outcome;
  const std::string unanswered = Withhold(job.ns, plan);
  const bool creates = !plan.creates.empty(), deletes = !plan.deletes.empty();
  Status status = executor_.Apply(job, plan, outcome);
  if (deletes) undeleted_.Note(job.ns, outcome.deleted, outcome.slowest_deletion);
  if (creates) unanswered_.Note(job.ns, outcome.deleted.ok() ? status : Status::Ok(), outcome.slowest_pod);
  if (!unanswered.empty() && status.ok() && outcome.problem.reason.empty())
    outcome.problem = {.reason = kRequestFailed, .message = unanswered, .retry_seconds = kAskAgainSeconds};
  // Our copy of the job is old, or another one leads: there is no news of the job.
  if (status.Is(Code::kConflict) || status.Is(Code::kStopped)) return status;
  if (!status.ok() && outcome.problem.reason.empty()) outcome.problem = Failed(job, status);
  if (status.ok()) NoteSuccess(job.Key());
  if (!outcome.problem.reason.empty()) {
    NoteProblem(job, outcome.problem, plan, now);
  } else {
    RetractProblem(job, plan, now);
  }
  if (outcome.master_moved) {
    FollowMaster(observed, outcome.master, plan, now);
    return status;
  }
  if (!outcome.group_news.empty()) NoteGroup(observed, outcome.group_news, plan, now);
  if (!outcome.master.empty()) plan.status.master.address = outcome.master;
  // What failed waits as any request that does.
  plan.more = outcome.more && status.ok() && outcome.problem.reason.empty();
  if (plan.more) plan.RequeueIn(plan.deletes.empty() ? 0 : kBetweenTurnsSeconds);
  if (outcome.deletions_awaited) plan.RequeueIn(kCacheLagSeconds);
  if (plan.needs_services) {
    CountCreated(observed, outcome.made, plan);
  } else if (plan.status.attempt == job.status.attempt) {
    // The status that waited to say so (status_writes.h) may be written for another reason.
    CountCreated(observed, observed.made, plan);
  }
  plan.made_seconds_ago = outcome.made_seconds_ago;
  // A pod that went again before any cache saw it wakes nobody.
  if (!plan.creates.empty() || !observed.coming.empty()) plan.RequeueIn(kCacheLagSeconds);
  return status;
}

std::string Reconciler::Withhold(const std::string& ns, Plan& plan) {
  plan.gently = unanswered_.IsSlow(ns) || undeleted_.IsSlow(ns);
  std::string why = plan.deletes.empty() ? "" : undeleted_.MayNotAsk(ns);
  if (!why.empty()) plan.deletes.clear();
  if (why.empty() && !plan.creates.empty()) why = unanswered_.MayNotAsk(ns);
  if (why.empty()) return "";
  plan.creates.clear();
  plan.needs_services = plan.needs_group = false;
  return why;
}

Problem Reconciler::Failed(const TrainingJob& job, const Status& status) {
  const api::Condition* before = FindCondition(job.status, kWorkersReadyCondition);
  const std::optional<double> written = own_writes_.Since(job.Key());
  const bool said = before && before->reason == kRequestFailed && written && *written < kSameWordsSeconds;
  const std::string message = said ? before->message : status.ToString() + "; it is tried again";
  const MutexLock lock(mutex_);
  return {.reason = kRequestFailed, .message = message, .news = failing_.insert(job.Key()).second};
}

void Reconciler::NoteSuccess(const std::string& key) {
  const MutexLock lock(mutex_);
  failing_.erase(key);
}

kube::ReconcileResult Reconciler::Tell(const TrainingJob& job, const Plan& plan, Time now) {
  const std::optional<double> again = plan.requeue_after_seconds;
  if (plan.events.empty()) {
    const double delay =
        WriteDelay(job.status, plan.status, {own_writes_.Since(job.Key()), plan.made_seconds_ago}, now);
    if (delay > 0) return {Status::Ok(), std::min(delay, again.value_or(delay))};
  }
  const Status written = WriteStatus(job, plan.status, now);
  for (const JobEvent& event : plan.events) {
    if (!written.ok() && !event.once) continue;
    const Status sent = events_.Record({api::kApiVersion, api::kKind, job.ns, job.name, job.uid}, event.type,
                                       event.reason, event.message);
    if (!sent.ok())
      log_.Debug("an event was not sent", {{"job", job.Key()}, {"reason", event.reason}, {"error", sent.ToString()}});
  }
  if (!written.ok()) return {written, AtLatest(again)};
  if (plan.delete_job) return {DeleteJob(job), {}};
  return {Status::Ok(), again};
}

Result<Observed> Reconciler::Observe(const JobRecord& record) {
  Observed observed = SortPods(record, caches_.pods().Indexed(record.job.Key()));
  executor_.Recall(observed);
  FindMissing(observed);
  sightings_.NoteDeletions(observed);
  const api::JobStatus& status = record.job.status;
  if (HandsOff(record.job) || IsFinished(status)) return observed;
  if (Status confirmed = ConfirmStale(client_, observed); !confirmed.ok()) return confirmed;
  if (Status confirmed = ConfirmMissing(client_, observed); !confirmed.ok()) return confirmed;
  if (Status confirmed = ConfirmAtRest(client_, observed); !confirmed.ok()) return confirmed;
  sightings_.NoteFailures(observed);
  sightings_.NoteUnschedulable(observed);
  observed.report = reports_.Get(record.job.uid);
  observed.progress_interval_seconds = options_.progress_interval_seconds;
  template_check_.Run(observed);
  return observed;
}

Status Reconciler::WriteStatus(const TrainingJob& job, api::JobStatus status, Time now) {
  if (job.status == status) return Status::Ok();
  const Json before = api::StatusToJson(job.status);
  // They may differ in what is not written, as parts of a second.
  if (before == api::StatusToJson(status)) return Status::Ok();
  // Time goes by in any status: it is no reason to write one.
  AccountTime(job, status, now);
  const Json after = api::StatusToJson(status);
  // The first write holds every field: a zero that was never written would read as unknown.
  const bool first = job.status.observed_generation == 0;
  const Json patch = api::MergeDiff(first ? Json::object() : before, after);
  // With the version that was read: a stale leader's write is refused, not merged.
  const Json body = {{"metadata", {{"resourceVersion", job.resource_version}}}, {"status", patch}};
  const int64_t rewinds = caches_.job_rewinds();
  if (const std::string why = untold_.MayNotAsk(job.ns); !why.empty())
    return Status(Code::kUnavailable, why).With("write status");
  const Instant asked = clock_.Steady();
  Result<Json> written =
      client_.MergePatch(kube::kTrainingJobs, job.ns, job.name, "status", body, {.fields = FieldsOfConfirmed()});
  untold_.Note(job.ns, written.status(), SecondsBetween(asked, clock_.Steady()));
  if (const Status& s = written.status(); s.Is(Code::kConflict) || s.Is(Code::kUnavailable) || s.Is(Code::kDeadline))
    written = AsWritten(job, after, std::move(written));
  if (written.status().Is(Code::kNotFound)) return Status::Ok();  // deleted meanwhile
  if (!written.ok()) return written.status().With("write status");
  metrics_.Count(job.status, status);
  if (status.workers.created == 0) executor_.Hear(job, *written, asked);
  own_writes_.Note(job.Key(), json::Text(json::Field(*written, "metadata"), "resourceVersion"), rewinds);
  return Status::Ok();
}

// The write may be done and its answer lost, also where another try of it was a conflict: what it said is then to be
// counted and told by us, since nobody will decide it again.
Result<Json> Reconciler::AsWritten(const TrainingJob& job, const Json& status, Result<Json> answer) {
  Result<Json> live = client_.Get(kube::kTrainingJobs, job.ns, job.name, FieldsOfConfirmed());
  if (!live.ok()) return answer;
  const TrainingJob read = api::JobFromJson(*live);
  return read.uid == job.uid && api::StatusToJson(read.status) == status ? std::move(live) : std::move(answer);
}

// The very one that was judged: whoever has changed it since, also its TTL, is heard first.
Status Reconciler::DeleteJob(const TrainingJob& job) {
  const Status deleted =
      client_.Delete(kube::kTrainingJobs, job.ns, job.name, {.uid = job.uid, .resource_version = job.resource_version});
  if (deleted.ok() || deleted.Is(Code::kNotFound)) return Status::Ok();
  return deleted.With("delete the job, ttlSecondsAfterFinished after its end");
}

}  // namespace trainyard::reconcile
