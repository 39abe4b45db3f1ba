#include "operator/reconcile/reconciler.h"

#include <algorithm>
#include <cstdlib>
#include <set>

#include "operator/api/json.h"
#include "operator/api/labels.h"
#include "operator/base/json_access.h"
#include "operator/reconcile/conditions.h"
#include "operator/reconcile/policies.h"
#include "operator/reconcile/status_writes.h"
#include "operator/reconcile/worker_pod.h"

namespace trainyard::reconcile {
namespace {

uint64_t Version(const std::string& text) { return std::strtoull(text.c_str(), nullptr, 10); }

constexpr size_t kMaxChecked = 4096;  // templates

void NoteProblem(const TrainingJob& job, const CreateProblem& problem, Plan& plan, Time now) {
  const api::Condition* before = FindCondition(job.status, kWorkersReadyCondition);
  const bool news = !before || before->reason != problem.reason;
  SetCondition(plan.status, kWorkersReadyCondition, false, problem.reason, problem.message, now, job.generation);
  if (news) plan.events.push_back({"Warning", problem.reason, problem.message});
  plan.RequeueIn(problem.retry_seconds);
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
      executor_(client, clock, options.parallel_requests) {}

kube::ReconcileResult Reconciler::Reconcile(const std::string& key) {
  const JobStore::Pointer record = caches_.jobs().Get(key);
  if (!record) {
    executor_.Forget(key);
    const MutexLock lock(mutex_);
    written_.erase(key);
    return {};
  }
  const TrainingJob& job = record->job;
  // Read our own writes: a decision on an older copy would repeat what was decided.
  if (CacheIsBehind(key, job)) return {Status::Ok(), 1.0};
  Result<Observed> observed = Observe(*record);
  if (!observed.ok()) return {observed.status(), {}};
  const Time now = clock_.Now();
  Plan plan = MakePlan(*observed, now);
  Outcome outcome;
  if (const Status status = executor_.Apply(job, plan, outcome); !status.ok()) return {status, {}};
  if (!outcome.problem.reason.empty()) NoteProblem(job, outcome.problem, plan, now);
  if (!outcome.master.empty()) plan.status.master.address = outcome.master;
  if (plan.needs_services) CountCreated(*observed, outcome.made, plan);
  // A pod that went again before any cache saw it wakes nobody.
  if (!plan.creates.empty() || !observed->coming.empty()) plan.RequeueIn(kCacheLagSeconds);
  if (const double delay = plan.events.empty() ? WriteDelay(job.status, plan.status, SinceWritten(key)) : 0;
      delay > 0) {
    plan.RequeueIn(delay);
    return {Status::Ok(), plan.requeue_after_seconds};
  }
  if (const Status status = WriteStatus(job, plan.status); !status.ok()) return {status, {}};
  for (const JobEvent& event : plan.events) {
    const Status sent = events_.Record({api::kApiVersion, api::kKind, job.ns, job.name, job.uid}, event.type,
                                       event.reason, event.message);
    if (!sent.ok())
      log_.Debug("an event was not sent", {{"job", key}, {"reason", event.reason}, {"error", sent.ToString()}});
  }
  if (plan.delete_job) return {DeleteJob(job), {}};
  return {Status::Ok(), plan.requeue_after_seconds};
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

// A pod that was just created and that no cache shows yet is not missing.
void Reconciler::ExpectNew(Observed& observed) {
  IndexSet shown;
  for (size_t i = 0; i < observed.current.size(); ++i) {
    if (observed.current[i]) shown.insert(static_cast<int64_t>(i));
  }
  observed.coming = executor_.Coming(observed.job, shown);
  std::erase_if(observed.missing, [&](int64_t worker) { return observed.coming.contains(worker); });
}

Result<Observed> Reconciler::Observe(const JobRecord& record) {
  Observed observed = SortPods(record, caches_.pods().Indexed(record.job.Key()));
  ExpectNew(observed);
  const api::JobStatus& status = record.job.status;
  if (HandsOff(record.job) || IsFinished(status)) return observed;
  if (Status confirmed = ConfirmStale(observed); !confirmed.ok()) return confirmed;
  if (Status confirmed = ConfirmMissing(observed); !confirmed.ok()) return confirmed;
  observed.report = reports_.Get(record.job.uid);
  observed.progress_interval_seconds = options_.progress_interval_seconds;
  if (status.observed_generation != record.job.generation && record.errors.empty()) DryRun(observed);
  return observed;
}

// A pod was created for an attempt that had been written: one of a later attempt than the job's shows that
// our copy of the job is old (a first list may be), unless the API itself says otherwise.
Status Reconciler::ConfirmStale(const Observed& observed) {
  const TrainingJob& job = observed.job;
  const bool ahead = std::any_of(observed.stale.begin(), observed.stale.end(),
                                 [&](const Pod& pod) { return pod->attempt > job.status.attempt; });
  if (!ahead) return Status::Ok();
  const Result<Json> live = client_.Get(kube::kTrainingJobs, job.ns, job.name);
  if (!live.ok()) return live.status().With("look at the job's attempt");
  if (json::Whole(json::Field(*live, "status"), "attempt") == job.status.attempt) return Status::Ok();
  return Status(Code::kConflict, "the cached job is older than its pods");
}

// A first list may be older than the job's own status: a pod is gone only when the API itself says so. One that is
// there without our label was taken out of the watch's sight by someone.
Status Reconciler::ConfirmMissing(Observed& observed) {
  const TrainingJob& job = observed.job;
  if (observed.missing.empty()) return Status::Ok();
  std::set<std::string> missing;
  for (const int64_t worker : observed.missing) missing.insert(api::PodName(job.name, job.status.attempt, worker));
  std::string labelled;
  const auto on_pod = [&](const Json& pod) {
    const Json& metadata = json::Field(pod, "metadata");
    const std::string name = json::Text(metadata, "name");
    if (!missing.contains(name) || !OwnedBy(pod, job.uid)) return;
    if (json::Text(json::Field(metadata, "labels"), api::kLabelManaged) == "true") labelled = name;
    observed.unlabelled.push_back({name, json::Text(metadata, "uid")});
  };
  const std::string selector = std::string(api::kLabelJobUid) + "=" + job.uid;
  const Status listed = client_.List(kube::kPods, job.ns, {.label_selector = selector}, on_pod).status();
  if (!listed.ok()) return listed.With("look for missing pods");
  if (!labelled.empty()) return Status(Code::kConflict, "pod " + labelled + " is not in the cache yet");
  return Status::Ok();
}

// The server knows pods better than we do: what it says about rank 0's, strictly read. A server that cannot say, for
// instance because a webhook fails, keeps back what is new, and nothing that runs.
void Reconciler::DryRun(Observed& observed) {
  const TrainingJob& job = observed.job;
  const std::string what = job.ns + "/" + SpecHash(job.spec);
  if (WasChecked(what)) return;
  const Result<Json> answer = client_.Create(kube::kPods, job.ns, WorkerPod(job, job.status.attempt + 1, 0, ""),
                                             {.dry_run = true, .strict = true});
  if (answer.status().Is(Code::kInvalid)) {
    observed.template_error = answer.status().message();
  } else if (answer.ok()) {
    NoteChecked(what);
  } else if (!answer.status().Is(Code::kAlreadyExists) && !answer.status().Is(Code::kForbidden)) {
    // A name in use or a quota says nothing about the template; creating the pods will tell.
    observed.template_unknown = "the API server could not check the template: " + answer.status().message();
  }
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

Status Reconciler::WriteStatus(const TrainingJob& job, const api::JobStatus& status) {
  const Json before = api::StatusToJson(job.status), after = api::StatusToJson(status);
  if (before == after) return Status::Ok();
  // The first write holds every field: a zero that was never written would read as unknown.
  const bool first = job.status.observed_generation == 0;
  const Json patch = api::MergeDiff(first ? Json::object() : before, after);
  // With the version that was read: a stale leader's write is refused, not merged.
  const Json body = {{"metadata", {{"resourceVersion", job.resource_version}}}, {"status", patch}};
  const int64_t rewinds = caches_.job_rewinds();
  const Result<Json> written = client_.MergePatch(kube::kTrainingJobs, job.ns, job.name, "status", body, {});
  if (written.status().Is(Code::kNotFound)) return Status::Ok();  // deleted meanwhile
  if (!written.ok()) return written.status().With("write status");
  metrics_.Count(job.status, status);
  const MutexLock lock(mutex_);
  written_[job.Key()] = {Version(json::Text(json::Field(*written, "metadata"), "resourceVersion")), rewinds,
                         clock_.Steady()};
  return Status::Ok();
}

// The very one that was judged: whoever has changed it since, also its TTL, is heard first.
Status Reconciler::DeleteJob(const TrainingJob& job) {
  const Status deleted =
      client_.Delete(kube::kTrainingJobs, job.ns, job.name, {.uid = job.uid, .resource_version = job.resource_version});
  if (deleted.ok() || deleted.Is(Code::kNotFound)) return Status::Ok();
  return deleted.With("delete the job, ttlSecondsAfterFinished after its end");
}

}  // namespace trainyard::reconcile
