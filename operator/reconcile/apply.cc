#include "operator/reconcile/apply.h"

#include <algorithm>
#include <atomic>
#include <cmath>
#include <functional>
#include <optional>

#include "operator/api/json.h"
#include "operator/api/labels.h"
#include "operator/base/json_access.h"
#include "operator/reconcile/conditions.h"
#include "operator/reconcile/gang.h"
#include "operator/reconcile/in_parallel.h"
#include "operator/reconcile/list_pods.h"
#include "operator/reconcile/observe.h"
#include "operator/reconcile/policies.h"
#include "operator/reconcile/worker_pod.h"

namespace trainyard::reconcile {
namespace {

// Before what was refused is tried again, in seconds; doubled each time.
constexpr double kFirstWait = 2, kLongestWait = 60, kLongestNameWait = 10;

// A pod that may not be deleted keeps no other from going; that none may shows at so many.
constexpr int kMostRefused = 16;

// Pods that one pass deletes, or creates: some seconds' work for an API server.
constexpr size_t kTurn = 500;
constexpr double kTurnSeconds = 5;

// Each pod on its way is a tree of some twenty times its text: 16 of 16 KiB at once, and fewer of larger ones.
constexpr size_t kBytesAtOnce = size_t{256} << 10;
constexpr int kGently = 6;
// Where many jobs create pods at the same time, each may have so many on their way.
constexpr int kLeastShare = 4;

// Nothing was before it.
constexpr int64_t kFirstAttempt = 1;

// Whether `live`, the API's copy of the job, is of this attempt, and its pods may be created.
bool MayRun(const TrainingJob& job, int64_t attempt, const Json& live) {
  if (json::Whole(json::Field(live, "status"), "attempt") != attempt) return false;
  const TrainingJob read = api::JobFromJson(live);
  return read.uid == job.uid && !read.spec.suspend && !read.deleting && !IsFinished(read.status);
}

// Whether pods of the attempt that still wait for each other were told another address than `master`.
bool HasMoved(const TrainingJob& job, const Plan& plan, const std::string& master) {
  const api::JobStatus& status = plan.status;
  const bool waits = !plan.creates.empty() || !IsTrue(status, kRunningCondition);
  return job.spec.rendezvous != api::kByName && waits && status.workers.created > 0 && !status.master.address.empty() &&
         status.master.address != master;
}

void Keep(Status& first, const Status& status) {
  if (first.ok()) first = status;
}

}  // namespace

Status Executor::Apply(const TrainingJob& job, const Plan& plan, Outcome& outcome) {
  outcome = {};
  outcome.held = IsHeld(job, plan, outcome.problem);
  if (outcome.held) return Status::Ok();
  Status status = CarryOut(job, plan, outcome);
  if (status.ok() || !outcome.problem.reason.empty()) Remember(job, outcome.problem);
  return status;
}

Status Executor::CarryOut(const TrainingJob& job, const Plan& plan, Outcome& outcome) {
  Status first = DeletePods(job, plan, outcome);
  Keep(first, Relabel(job, plan, outcome));
  if (plan.drops_groups) Keep(first, groups_.Drop(job));
  if (plan.drops_master) Keep(first, services_.DropMaster(job, [&] { return ConfirmRest(job); }));
  if (!first.ok() || !outcome.problem.reason.empty() || outcome.more) return first;
  return Create(job, plan, outcome);
}

Status Executor::Create(const TrainingJob& job, const Plan& plan, Outcome& outcome) {
  // An answer holds for a while, so that this is one request, or none, however often it is asked.
  const ConfirmFunction confirm = [&] { return ConfirmAttempt(job, plan); };
  if (!plan.creates.empty()) {
    if (Status status = confirm(); !status.ok()) return status;
  }
  if (plan.needs_services) {
    Status status = services_.Ensure(job, plan.status.attempt, confirm, outcome.master, outcome.problem);
    if (!status.ok() || !outcome.problem.reason.empty()) return status;
    outcome.master_moved = HasMoved(job, plan, outcome.master);
    if (outcome.master_moved) return Status::Ok();
  }
  if (plan.needs_group) {
    Status status = groups_.Ensure(job, plan.status.attempt, confirm, outcome.group_news, outcome.problem);
    if (!status.ok() || !outcome.problem.reason.empty()) return status;
  }
  return CreatePods(job, plan, outcome);
}

Executor::Topic Executor::TopicOf(const Plan& plan) {
  const bool wants = !plan.creates.empty() || plan.needs_services;
  return {plan.status.attempt, wants, !plan.deletes.empty(), !plan.relabels.empty()};
}

bool Executor::IsHeld(const TrainingJob& job, const Plan& plan, Problem& problem) {
  const MutexLock lock(mutex_);
  Memory& memory = memory_[job.Key()];
  if (memory.uid != job.uid) memory = Memory{.uid = job.uid};
  if (memory.topic != TopicOf(plan)) {
    memory.topic = TopicOf(plan);
    memory.problem = {};
    memory.problems = 0;
  }
  const double left = SecondsBetween(clock_.Steady(), memory.retry_at);
  if (memory.problem.reason.empty() || left <= 0) return false;
  problem = memory.problem;
  problem.retry_seconds = left;
  return true;
}

void Executor::Remember(const TrainingJob& job, Problem& problem) {
  const MutexLock lock(mutex_);
  Memory& memory = memory_[job.Key()];
  if (problem.reason.empty()) {
    memory.problem = {};
    memory.problems = 0;
    return;
  }
  problem.news = memory.problem.reason != problem.reason;
  // Jobs that were stopped together do not come back together.
  const double spread = 0.8 + 0.4 * static_cast<double>(std::hash<std::string>()(job.uid) % 1000) / 1000;
  const double longest = problem.reason == kNameInUse ? kLongestNameWait : kLongestWait;
  problem.retry_seconds = spread * std::min(longest, kFirstWait * std::pow(2, std::min(memory.problems, 20)));
  memory.problem = problem;
  memory.problem.news = false;
  ++memory.problems;
  memory.retry_at = After(clock_.Steady(), problem.retry_seconds);
}

// The cache of pods may be old as well, after a start even older than this attempt: nothing of another attempt may be
// alive when the first pod of this one is created.
Status Executor::ConfirmAlone(const TrainingJob& job, int64_t attempt) {
  std::string left, hidden;
  const PodQuestion others{.labels = std::string(api::kLabelAttempt) + "!=" + std::to_string(attempt)};
  const Status listed = ListPods(client_, job, others, [&](const Json& pod) {
    if (IsSpent(PodFromJson(pod))) return;
    (IsShown(job, pod) ? left : hidden) = json::Text(json::Field(pod, "metadata"), "name");
  });
  if (!listed.ok()) return listed.With("confirm that no pod is left");
  // No watch will ever tell of it.
  if (!hidden.empty()) return LeftWithoutLabel(hidden, job.name);
  if (!left.empty())
    return Status(Code::kConflict, "pod " + left + " of another attempt is left: the cached pods are old");
  return Status::Ok();
}

void Executor::Recall(Observed& observed) {
  const TrainingJob& job = observed.job;
  const MutexLock lock(mutex_);
  const auto found = memory_.find(job.Key());
  if (found == memory_.end() || found->second.uid != job.uid || found->second.confirmed_attempt != job.status.attempt)
    return;
  Memory& memory = found->second;
  std::erase_if(memory.coming, [&](const auto& pod) {
    const auto worker = static_cast<size_t>(pod.first);
    const bool shown = worker < observed.current.size() && observed.current[worker];
    return shown || SecondsBetween(pod.second, clock_.Steady()) > kCacheLagSeconds;
  });
  observed.made = memory.made;
  for (const auto& [worker, at] : memory.coming) observed.coming.insert(worker);
}

void Executor::Forget(const std::string& key) {
  services_.Forget(key);
  groups_.Forget(key);
  const MutexLock lock(mutex_);
  memory_.erase(key);
}

// A cache that is behind shows pods as they were: each look at it would delete the same ones once more.
std::vector<PodDelete> Executor::NewDeletions(const TrainingJob& job, const Plan& plan, Outcome& outcome) {
  const MutexLock lock(mutex_);
  Memory& memory = memory_[job.Key()];
  std::map<std::pair<std::string, bool>, Instant> asked;
  std::vector<PodDelete> fresh;
  for (const PodDelete& pod : plan.deletes) {
    const auto found = memory.deletions.find({pod.uid, pod.force});
    const bool counts =
        found != memory.deletions.end() && SecondsBetween(found->second, clock_.Steady()) < kCacheLagSeconds;
    counts ? void(asked.insert(*found)) : fresh.push_back(pod);
  }
  memory.deletions = std::move(asked);
  outcome.deletions_awaited = !memory.deletions.empty();
  return fresh;
}

Status Executor::DeletePods(const TrainingJob& job, const Plan& plan, Outcome& outcome) {
  const std::vector<PodDelete> pods = NewDeletions(job, plan, outcome);
  outcome.more = pods.size() > kTurn;
  Mutex mutex;
  Status refusal;
  int refused = 0;
  const Instant end = After(clock_.Steady(), kTurnSeconds);
  const int at_once = plan.gently ? std::min(kGently, parallel_) : parallel_;
  outcome.deleted = InParallel(std::min(pods.size(), kTurn), at_once, [&](size_t i) {
    if (clock_.Steady() >= end) {
      const MutexLock lock(mutex);
      outcome.more = true;
      return Status::Ok();
    }
    double seconds = 0;
    Status status = DeletePod(job, pods[i], seconds);
    const MutexLock lock(mutex);
    outcome.slowest_deletion = std::max(outcome.slowest_deletion.value_or(0), seconds);
    if (!status.Is(Code::kForbidden) && !status.Is(Code::kInvalid)) return status;
    Keep(refusal, status);
    return ++refused < kMostRefused ? Status::Ok() : status;
  });
  Status first = StayWith(refusal, "Pod", outcome.problem);
  Keep(first, StayWith(outcome.deleted, "Pod", outcome.problem));
  return first;
}

Status Executor::DeletePod(const TrainingJob& job, const PodDelete& pod, double& seconds) {
  const std::optional<int64_t> grace = pod.force ? std::optional<int64_t>(0) : std::nullopt;
  const Instant begin = clock_.Steady();
  const Status status = client_.Delete(kube::kPods, job.ns, pod.name, {.uid = pod.uid, .grace_seconds = grace});
  seconds = SecondsBetween(begin, clock_.Steady());
  // Another uid has the name: the one we meant is gone.
  if (!status.ok() && !status.Is(Code::kNotFound) && !status.Is(Code::kConflict))
    return status.With("delete pod " + pod.name);
  const MutexLock lock(mutex_);
  memory_[job.Key()].deletions[{pod.uid, pod.force}] = begin;
  return Status::Ok();
}

Status Executor::Relabel(const TrainingJob& job, const Plan& plan, Outcome& outcome) {
  const Instant end = After(clock_.Steady(), kTurnSeconds);
  std::atomic<bool> late = false;
  const Status status = InParallel(std::min(plan.relabels.size(), kTurn), std::min(kGently, parallel_), [&](size_t i) {
    late = late || clock_.Steady() >= end;
    return late ? Status::Ok() : RelabelPod(job, plan.relabels[i]);
  });
  outcome.more |= late || plan.relabels.size() > kTurn;
  return StayWith(status, "Pod", outcome.problem);
}

Status Executor::RelabelPod(const TrainingJob& job, const WorkerName& pod) {
  const Json labels = WorkerLabels(job, job.status.attempt, pod.worker);
  const Json body = {{"metadata", {{"uid", pod.uid}, {"labels", labels}}}};
  const Status status = client_.MergePatch(kube::kPods, job.ns, pod.name, "", body, {}).status();
  return status.ok() || status.Is(Code::kNotFound) ? Status::Ok() : status.With("label pod " + pod.name);
}

bool Executor::IsConfirmed(const TrainingJob& job, const Plan& plan) {
  const MutexLock lock(mutex_);
  const Memory& memory = memory_[job.Key()];
  return memory.confirmed_attempt == plan.status.attempt &&
         SecondsBetween(memory.confirmed_at, clock_.Steady()) < kConfirmedSeconds;
}

Status Executor::ConfirmAttempt(const TrainingJob& job, const Plan& plan) {
  if (IsConfirmed(job, plan)) return Status::Ok();
  const Instant asked = clock_.Steady();  // the answer is as old as the question
  const Result<Json> live = client_.Get(kube::kTrainingJobs, job.ns, job.name, FieldsOfConfirmed());
  if (!live.ok()) return live.status().With("confirm the attempt");
  if (!MayRun(job, plan.status.attempt, *live))
    return Status(Code::kConflict, "the job has moved on: its cached copy is old");
  if (plan.status.attempt > kFirstAttempt) {
    if (Status status = ConfirmAlone(job, plan.status.attempt); !status.ok()) return status;
  }
  NoteConfirmed(job, plan.status.attempt, asked);
  return Status::Ok();
}

// A suspended job may have been resumed since our copy of it; one that has ended stays so.
Status Executor::ConfirmRest(const TrainingJob& job) {
  if (IsFinished(job.status)) return Status::Ok();
  const Result<Json> live = client_.Get(kube::kTrainingJobs, job.ns, job.name, FieldsOfConfirmed());
  if (!live.ok()) return live.status().With("confirm the suspension");
  const TrainingJob read = api::JobFromJson(*live);
  if (read.uid == job.uid && read.spec.suspend && read.status.attempt == job.status.attempt) return Status::Ok();
  return Status(Code::kConflict, "the job has moved on: its cached copy is old");
}

void Executor::NoteConfirmed(const TrainingJob& job, int64_t attempt, Instant asked) {
  const MutexLock lock(mutex_);
  Memory& memory = memory_[job.Key()];
  if (memory.uid != job.uid) memory = Memory{.uid = job.uid};
  if (memory.confirmed_attempt != attempt) {
    memory.made.clear();
    memory.made_at.reset();
    memory.coming.clear();
  }
  memory.confirmed_attempt = attempt;
  memory.confirmed_at = asked;
}

void Executor::Hear(const TrainingJob& job, const Json& written, Instant asked) {
  if (MayRun(job, kFirstAttempt, written)) NoteConfirmed(job, kFirstAttempt, asked);
}

Status Executor::CreatePods(const TrainingJob& job, const Plan& plan, Outcome& outcome) {
  struct Creating {
    explicit Creating(std::atomic<int>& of) : of_(of) { ++of_; }
    ~Creating() { --of_; }
    std::atomic<int>& of_;
  } const creating(creating_);
  const size_t turn = std::min(plan.creates.size(), kTurn);
  outcome.more = plan.creates.size() > turn;
  std::vector<int64_t> ranks(plan.creates.begin(), plan.creates.begin() + static_cast<std::ptrdiff_t>(turn));
  Status status;
  bool in_vain = false;  // the last batch was late as a whole
  size_t done = 0;
  std::optional<Instant> end;  // from the first pod on, so that each turn creates some
  // Slow start: a quota or a missing right shows at the first pod, not at the thousandth.
  for (size_t batch = plan.gently ? kGently : 1; done < ranks.size() && status.ok() && outcome.problem.reason.empty();
       batch = std::min(batch * 2, ranks.size())) {
    if (end && clock_.Steady() >= *end) {
      outcome.more = true;
      break;
    }
    status = ConfirmAttempt(job, plan);  // asks again when the last answer is old
    if (!status.ok()) break;
    if (!end) end = After(clock_.Steady(), kTurnSeconds);
    const size_t count = std::min(batch, ranks.size() - done);
    const auto begin = ranks.begin() + static_cast<std::ptrdiff_t>(done);
    std::vector<int64_t> late;
    status = CreateBatch(job, plan, {begin, begin + static_cast<std::ptrdiff_t>(count)}, *end, late, outcome);
    if (status.ok() && in_vain && late.size() == count)
      status = Status(Code::kDeadline, "the API's answer that the attempt is the newest takes longer than the " +
                                           std::to_string(static_cast<int>(kConfirmedSeconds)) + " s that it counts");
    in_vain = late.size() == count;
    done += count;
    ranks.insert(ranks.end(), late.begin(), late.end());
  }
  const MutexLock lock(mutex_);
  const Memory& memory = memory_[job.Key()];
  outcome.made = memory.made;
  if (memory.made_at) outcome.made_seconds_ago = SecondsBetween(*memory.made_at, clock_.Steady());
  return status;
}

int Executor::AtOnce(const TrainingJob& job, const Plan& plan) const {
  const auto length = [](const Json& value) {
    return value.dump(-1, ' ', false, Json::error_handler_t::replace).size();
  };
  const size_t bytes = length(job.spec.pod_template) + length(job.spec.config);
  const int jobs = std::max(1, creating_.load());
  const auto fit = static_cast<int>(std::min<size_t>(kBytesAtOnce / std::max<size_t>(bytes, 1), 1000)) / jobs;
  const int share = std::max(parallel_ / jobs, kLeastShare);
  return std::clamp(std::min(plan.gently ? kGently : share, fit), 1, parallel_);
}

Status Executor::CreateBatch(const TrainingJob& job, const Plan& plan, const std::vector<int64_t>& ranks, Instant end,
                             std::vector<int64_t>& late, Outcome& outcome) {
  Mutex mutex;
  bool refused = false;
  return InParallel(ranks.size(), AtOnce(job, plan), [&](size_t i) {
    const bool confirmed = IsConfirmed(job, plan);
    const Instant begin = clock_.Steady();
    {
      const MutexLock lock(mutex);
      if (refused) return Status::Ok();
      if (!confirmed) late.push_back(ranks[i]);
      outcome.more |= confirmed && begin >= end;
    }
    if (!confirmed || begin >= end) return Status::Ok();
    Problem mine;
    Status status = CreatePod(job, plan.status.attempt, ranks[i], outcome.master, mine);
    const MutexLock lock(mutex);
    outcome.slowest_pod = std::max(outcome.slowest_pod.value_or(0), SecondsBetween(begin, clock_.Steady()));
    if (!mine.reason.empty() && !refused) outcome.problem = mine;
    refused |= !mine.reason.empty();
    return status;
  });
}

Status Executor::CreatePod(const TrainingJob& job, int64_t attempt, int64_t rank, const std::string& master,
                           Problem& problem) {
  Json pod = WorkerPod(job, attempt, rank, master);
  JoinGang(job, attempt, pod);
  const std::string name = json::Text(json::Field(pod, "metadata"), "name");
  const Status created = client_.Create(kube::kPods, job.ns, pod, {.answer = false}).status();
  if (created.Is(Code::kAlreadyExists)) {
    const Result<Json> existing = client_.Get(kube::kPods, job.ns, name);
    if (!existing.ok()) return existing.status().With("get pod " + name);
    if (!OwnedBy(*existing, job.uid) || IsGoing(*existing)) {
      problem = TakenBy("pod", *existing);
      return Status::Ok();
    }
  } else if (!created.ok()) {
    return StayWith(created.With("create pod " + name), "Pod", problem);
  }
  const MutexLock lock(mutex_);
  Memory& memory = memory_[job.Key()];
  memory.made.insert(rank);
  memory.coming[rank] = clock_.Steady();
  if (!memory.made_at) memory.made_at = memory.coming[rank];
  return Status::Ok();
}

}  // namespace trainyard::reconcile
