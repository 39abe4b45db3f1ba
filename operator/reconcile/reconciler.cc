#include "operator/reconcile/reconciler.h"

#include <algorithm>
#include <cstdlib>
#include <map>
#include <set>

#include "operator/api/json.h"
#include "operator/api/labels.h"
#include "operator/base/json_access.h"
#include "operator/kube/webhook.h"
#include "operator/reconcile/conditions.h"
#include "operator/reconcile/culprit.h"
#include "operator/reconcile/follow_master.h"
#include "operator/reconcile/list_pods.h"
#include "operator/reconcile/policies.h"
#include "operator/reconcile/status_writes.h"
#include "operator/reconcile/worker_pod.h"

namespace trainyard::reconcile {
namespace {

uint64_t Version(const std::string& text) { return std::strtoull(text.c_str(), nullptr, 10); }

constexpr size_t kMaxChecked = 4096;  // templates
constexpr size_t kMostAskedByName = 16;

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
  if (news) plan.events.push_back({"Warning", problem.reason, problem.message});
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
      untold_(clock) {}

kube::ReconcileResult Reconciler::Reconcile(const std::string& key) {
  const JobStore::Pointer record = caches_.jobs().Get(key);
  if (!record) {
    Forget(key);
    return {};
  }
  // Read our own writes: a decision on an older copy would repeat what was decided.
  if (CacheIsBehind(key, record->job)) return {Status::Ok(), 1.0};
  return record->apart ? PassOfLong(*record) : Pass(*record);
}

void Reconciler::Forget(const std::string& key) {
  executor_.Forget(key);
  const MutexLock lock(mutex_);
  written_.erase(key);
  refused_.erase(key);
  failing_.erase(key);
  deletions_.erase(key);
  failures_.erase(key);
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
  const Result<Json> live = client_.Get(kube::kTrainingJobs, job.ns, job.name, UnreadOfWhole());
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
  if (deletes) NoteAnswer(undeleted_, job.ns, outcome.deleted, outcome.slowest_deletion);
  if (creates) NoteAnswer(unanswered_, job.ns, outcome.deleted.ok() ? status : Status::Ok(), outcome.slowest_pod);
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

// A webhook that hangs or fails is its namespace's, and takes a worker of ours for as long as it does; of a server that
// is away nobody is to blame.
void Reconciler::NoteAnswer(Unanswered& of, const std::string& ns, const Status& status,
                            std::optional<double> seconds) {
  const bool failed = status.Is(Code::kUnavailable) || status.Is(Code::kThrottled);
  if (failed && kube::IsOfWebhook(status)) return of.NotAnswered(ns, status.message());
  if (status.ok() && seconds) return of.Answered(ns, *seconds);
  of.NotAsked(ns);
}

Problem Reconciler::Failed(const TrainingJob& job, const Status& status) {
  const api::Condition* before = FindCondition(job.status, kWorkersReadyCondition);
  const std::optional<double> written = SinceWritten(job.Key());
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
    const double delay = WriteDelay(job.status, plan.status, {SinceWritten(job.Key()), plan.made_seconds_ago}, now);
    if (delay > 0) return {Status::Ok(), std::min(delay, again.value_or(delay))};
  }
  if (const Status status = WriteStatus(job, plan.status, now); !status.ok()) return {status, AtLatest(again)};
  for (const JobEvent& event : plan.events) {
    const Status sent = events_.Record({api::kApiVersion, api::kKind, job.ns, job.name, job.uid}, event.type,
                                       event.reason, event.message);
    if (!sent.ok())
      log_.Debug("an event was not sent", {{"job", job.Key()}, {"reason", event.reason}, {"error", sent.ToString()}});
  }
  if (plan.delete_job) return {DeleteJob(job), {}};
  return {Status::Ok(), again};
}

bool Reconciler::CacheIsBehind(const std::string& key, const TrainingJob& job) {
  const MutexLock lock(mutex_);
  const auto found = written_.find(key);
  return found != written_.end() && found->second.rewinds == caches_.job_rewinds() &&
         Version(job.resource_version) < found->second.version;
}

std::optional<double> Reconciler::SinceWritten(const std::string& key) {
  const MutexLock lock(mutex_);
  const auto found = written_.find(key);
  if (found == written_.end()) return std::nullopt;
  return SecondsBetween(found->second.at, clock_.Steady());
}

Result<Observed> Reconciler::Observe(const JobRecord& record) {
  Observed observed = SortPods(record, caches_.pods().Indexed(record.job.Key()));
  executor_.Recall(observed);
  FindMissing(observed);
  WatchDeletions(observed);
  const api::JobStatus& status = record.job.status;
  if (HandsOff(record.job) || IsFinished(status)) return observed;
  if (Status confirmed = ConfirmStale(observed); !confirmed.ok()) return confirmed;
  if (Status confirmed = ConfirmMissing(observed); !confirmed.ok()) return confirmed;
  if (Status confirmed = ConfirmAtRest(observed); !confirmed.ok()) return confirmed;
  WatchFailures(observed);
  observed.report = reports_.Get(record.job.uid);
  observed.progress_interval_seconds = options_.progress_interval_seconds;
  CheckTemplate(observed);
  return observed;
}

void Reconciler::WatchDeletions(Observed& observed) {
  const std::string key = observed.job.Key();
  const Instant now = clock_.Steady();
  const MutexLock lock(mutex_);
  std::map<std::string, Instant> seen;
  const auto known = deletions_.find(key);
  for (const std::vector<Pod>* pods : {&observed.current, &observed.stale, &observed.earlier}) {
    for (const Pod& pod : *pods) {
      const std::optional<double> needed = pod ? DeletionSeconds(observed, *pod) : std::nullopt;
      if (!needed) continue;
      Instant& since = seen[pod->uid] = now;
      if (known != deletions_.end() && known->second.contains(pod->uid)) since = known->second.at(pod->uid);
      if (const double left = *needed - SecondsBetween(since, now); left > 0) observed.unproven[pod->uid] = left;
    }
  }
  if (seen.empty()) {
    deletions_.erase(key);
  } else {
    deletions_[key] = std::move(seen);
  }
}

void Reconciler::WatchFailures(Observed& observed) {
  const TrainingJob& job = observed.job;
  const bool failed = !FailedWorkers(observed, clock_.Now()).empty();
  const Instant now = clock_.Steady();
  const MutexLock lock(mutex_);
  if (!failed) {
    failures_.erase(job.Key());
    return;
  }
  Failing& first = failures_[job.Key()];
  if (first.uid != job.uid || first.attempt != job.status.attempt)
    first = {.uid = job.uid, .attempt = job.status.attempt, .since = now};
  observed.failing_seconds = SecondsBetween(first.since, now);
}

// Once per generation, and again and again while it is refused: the verdict stands until there is another.
void Reconciler::CheckTemplate(Observed& observed) {
  const TrainingJob& job = observed.job;
  const bool is_new = job.status.observed_generation != job.generation;
  if (!observed.spec_errors.empty() || !(is_new || (WasRefused(job) && IsToBeAsked(job.Key())))) return;
  DryRun(observed);
  if (!is_new) observed.template_unknown.clear();
  const MutexLock lock(mutex_);
  if (observed.template_checked) {
    refused_.erase(job.Key());
  } else {
    refused_[job.Key()] = clock_.Steady();
  }
}

bool Reconciler::IsToBeAsked(const std::string& key) {
  const MutexLock lock(mutex_);
  const auto found = refused_.find(key);
  return found == refused_.end() || SecondsBetween(found->second, clock_.Steady()) >= kAskRefusedSeconds;
}

// A pod was created for an attempt that had been written: one of a later attempt than the job's shows that
// our copy of the job is old (a first list may be), unless the API itself says otherwise.
Status Reconciler::ConfirmStale(const Observed& observed) {
  const TrainingJob& job = observed.job;
  const auto ahead = [&](const std::vector<Pod>& pods) {
    return std::any_of(pods.begin(), pods.end(), [&](const Pod& pod) { return pod->attempt > job.status.attempt; });
  };
  if (!ahead(observed.stale) && !ahead(observed.spent)) return Status::Ok();
  const Result<Json> live = client_.Get(kube::kTrainingJobs, job.ns, job.name, UnreadOfConfirmed());
  if (!live.ok()) return live.status().With("look at the job's attempt");
  if (json::Whole(json::Field(*live, "status"), "attempt") == job.status.attempt) return Status::Ok();
  return Status(Code::kConflict, "the cached job is older than its pods");
}

// A first list may be older than the job's own status: a pod is gone only when the API itself says so. One that is
// there with other labels was taken out of its place, or out of the watch's sight, by someone.
Status Reconciler::ConfirmMissing(Observed& observed) {
  const TrainingJob& job = observed.job;
  if (observed.missing.empty()) return Status::Ok();
  std::map<std::string, int64_t> missing;
  for (const int64_t worker : observed.missing)
    missing.emplace(api::PodName(job.name, job.status.attempt, worker), worker);
  std::string labelled;
  const auto look = [&](const Json& pod) {
    const Json& metadata = json::Field(pod, "metadata");
    const std::string name = json::Text(metadata, "name");
    const auto found = missing.find(name);
    if (found == missing.end()) return;
    const Json& labels = json::Field(metadata, "labels");
    const Json wanted = WorkerLabels(job, job.status.attempt, found->second);
    bool same = true;
    for (const auto& [label, value] : wanted.items()) same &= json::Text(labels, label.c_str()) == value;
    if (same) labelled = name;
    observed.unlabelled.push_back({name, json::Text(metadata, "uid"), found->second});
    missing.erase(found);
  };
  const Status listed = ListPods(client_, job, {.labels = "", .metadata_only = true}, look);
  if (!listed.ok()) return listed.With("look for missing pods");
  // The label that the list goes by may be gone as well, mostly of all pods that someone has touched: some names do.
  std::vector<std::string> names;
  for (const auto& [name, worker] : missing) names.push_back(name);
  names.resize(std::min(names.size(), kMostAskedByName));
  for (const std::string& name : names) {
    const Result<Json> pod = client_.Get(kube::kPods, job.ns, name, UnreadOfPods());
    if (pod.ok() && OwnedBy(*pod, job.uid)) look(*pod);
    if (!pod.ok() && !pod.status().Is(Code::kNotFound)) return pod.status().With("look for missing pods");
  }
  if (!labelled.empty()) return Status(Code::kConflict, "pod " + labelled + " is not in the cache yet");
  return Status::Ok();
}

// A job is suspended when the API itself says that none of its pods is left: those that an earlier process made may be
// in no cache yet.
Status Reconciler::ConfirmAtRest(const Observed& observed) {
  const TrainingJob& job = observed.job;
  if (!IsAtRest(observed) || !observed.unlabelled.empty()) return Status::Ok();
  std::set<std::string> spent;
  for (const Pod& pod : observed.spent) spent.insert(pod->name);
  std::string left, hidden;
  const Status listed = ListPods(client_, job, {.labels = "", .metadata_only = true}, [&](const Json& pod) {
    const std::string name = json::Text(json::Field(pod, "metadata"), "name");
    if (!spent.contains(name)) (IsShown(job, pod) ? left : hidden) = name;
  });
  if (!listed.ok()) return listed.With("confirm that no pod is left");
  if (!left.empty()) return Status(Code::kConflict, "pod " + left + " is not in the cache yet");
  if (!hidden.empty()) return LeftWithoutLabel(hidden, job.name);
  return Status::Ok();
}

// The server knows pods better than we do: what it says about rank 0's, strictly read. A server that cannot say, for
// instance because a webhook fails, keeps back what is new, and nothing that runs.
void Reconciler::DryRun(Observed& observed) {
  const TrainingJob& job = observed.job;
  const std::string what = job.ns + "/" + SpecHash(job);
  observed.template_checked = WasChecked(what);
  if (observed.template_checked) return;
  observed.template_unknown = unanswered_.MayNotAsk(job.ns);
  if (!observed.template_unknown.empty()) return;
  const Instant asked = clock_.Steady();
  const Json pod = WorkerPod(job, job.status.attempt + 1, 0, "");
  const Result<Json> answer = client_.Create(kube::kPods, job.ns, pod, {.dry_run = true, .strict = true});
  const double seconds = SecondsBetween(asked, clock_.Steady());
  if (answer.status().Is(Code::kInvalid)) {
    observed.template_error = OfTemplate(job, pod, answer.status().message());
  } else if (answer.ok()) {
    NoteChecked(what);
  } else if (!answer.status().Is(Code::kAlreadyExists) && !answer.status().Is(Code::kForbidden)) {
    // A name in use or a quota says nothing about the template; creating the pods will tell.
    observed.template_unknown = "the API server could not check the template: " + answer.status().message();
    NoteAnswer(unanswered_, job.ns, Status(answer.status().code(), observed.template_unknown), seconds);
  }
  if (observed.template_unknown.empty()) unanswered_.Answered(job.ns, seconds);
  observed.template_checked = observed.template_error.empty() && observed.template_unknown.empty();
}

// What the same template was checked for before needs no second look; creating its pods would tell if it did.
bool Reconciler::WasChecked(const std::string& what) {
  const MutexLock lock(mutex_);
  return checked_.contains(what);
}

void Reconciler::NoteChecked(const std::string& what) {
  const MutexLock lock(mutex_);
  if (checked_.size() >= kMaxChecked) checked_.clear();
  checked_.insert(what);
}

Status Reconciler::WriteStatus(const TrainingJob& job, api::JobStatus status, Time now) {
  const Json before = api::StatusToJson(job.status);
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
      client_.MergePatch(kube::kTrainingJobs, job.ns, job.name, "status", body, {.unread = UnreadOfConfirmed()});
  NoteAnswer(untold_, job.ns, written.status(), SecondsBetween(asked, clock_.Steady()));
  if (const Status& s = written.status(); s.Is(Code::kConflict) || s.Is(Code::kUnavailable) || s.Is(Code::kDeadline))
    written = AsWritten(job, after, std::move(written));
  if (written.status().Is(Code::kNotFound)) return Status::Ok();  // deleted meanwhile
  if (!written.ok()) return written.status().With("write status");
  metrics_.Count(job.status, status);
  if (status.workers.created == 0) executor_.Hear(job, *written, asked);
  const MutexLock lock(mutex_);
  written_[job.Key()] = {Version(json::Text(json::Field(*written, "metadata"), "resourceVersion")), rewinds,
                         clock_.Steady()};
  return Status::Ok();
}

// The write may be done and its answer lost, also where another try of it was a conflict: what it said is then to be
// counted and told by us, since nobody will decide it again.
Result<Json> Reconciler::AsWritten(const TrainingJob& job, const Json& status, Result<Json> answer) {
  Result<Json> live = client_.Get(kube::kTrainingJobs, job.ns, job.name, UnreadOfConfirmed());
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
