#include "operator/reconcile/apply.h"

#include <algorithm>
#include <atomic>
#include <cmath>
#include <functional>
#include <thread>

#include "operator/api/labels.h"
#include "operator/base/json_access.h"
#include "operator/reconcile/conditions.h"
#include "operator/reconcile/worker_pod.h"

namespace trainyard::reconcile {
namespace {

// Runs f(0) ... f(count - 1), `parallel` at a time.
void InParallel(size_t count, int parallel, const std::function<void(size_t)>& f) {
  const size_t threads = std::min(count, static_cast<size_t>(parallel));
  if (threads <= 1) {
    for (size_t i = 0; i < count; ++i) f(i);
    return;
  }
  std::atomic<size_t> next{0};
  std::vector<std::thread> pool;
  pool.reserve(threads);
  for (size_t t = 0; t < threads; ++t) {
    pool.emplace_back([&] {
      for (size_t i = next++; i < count; i = next++) f(i);
    });
  }
  for (std::thread& thread : pool) thread.join();
}

// Before what kept a pod from being created is tried again, in seconds; doubled each time.
constexpr double kFirstWait = 2, kLongestWait = 60, kLongestNameWait = 10;

void Keep(Status& first, const Status& status) {
  if (first.ok()) first = status;
}

bool HasEnded(const Json& job) {
  const Json& conditions = json::List(json::Field(job, "status"), "conditions");
  return std::any_of(conditions.begin(), conditions.end(), [](const Json& condition) {
    const std::string type = json::Text(condition, "type");
    return (type == kCompleteCondition || type == kFailedCondition) && json::Text(condition, "status") == "True";
  });
}

}  // namespace

Status Executor::Apply(const TrainingJob& job, const Plan& plan, Outcome& outcome) {
  {
    const MutexLock lock(mutex_);
    Memory& memory = memory_[job.Key()];
    if (memory.uid != job.uid) memory = Memory{.uid = job.uid};
  }
  Status first = DeletePods(job, plan);
  Keep(first, Relabel(job, plan));
  const bool wants = !plan.creates.empty() || plan.needs_services;  // else a problem of before is none now
  if (!first.ok() || !wants || IsHeld(job, outcome.problem)) return first;
  first = Create(job, plan, outcome);
  if (first.ok()) Remember(job, outcome.problem);
  return first;
}

Status Executor::Create(const TrainingJob& job, const Plan& plan, Outcome& outcome) {
  if (!plan.creates.empty()) {
    if (Status status = ConfirmAttempt(job, plan); !status.ok()) return status;
  }
  if (plan.needs_services) {
    Status status = services_.Ensure(job, plan.status.attempt, outcome.master, outcome.problem);
    if (!status.ok() || !outcome.problem.reason.empty()) return status;
  }
  return CreatePods(job, plan, outcome);
}

bool Executor::IsHeld(const TrainingJob& job, CreateProblem& problem) {
  const MutexLock lock(mutex_);
  const Memory& memory = memory_[job.Key()];
  const double left = SecondsBetween(clock_.Steady(), memory.retry_at);
  if (memory.problem.reason.empty() || left <= 0) return false;
  problem = memory.problem;
  problem.retry_seconds = left;
  return true;
}

void Executor::Remember(const TrainingJob& job, CreateProblem& problem) {
  const MutexLock lock(mutex_);
  Memory& memory = memory_[job.Key()];
  if (problem.reason.empty()) {
    memory.problem = {};
    memory.problems = 0;
    return;
  }
  // Jobs that were stopped together do not come back together.
  const double spread = 0.8 + 0.4 * static_cast<double>(std::hash<std::string>()(job.uid) % 1000) / 1000;
  const double longest = problem.reason == kNameInUse ? kLongestNameWait : kLongestWait;
  problem.retry_seconds = spread * std::min(longest, kFirstWait * std::pow(2, std::min(memory.problems, 20)));
  memory.problem = problem;
  ++memory.problems;
  memory.retry_at = After(clock_.Steady(), problem.retry_seconds);
}

// The cache of pods may be old as well, after a start even older than this attempt: nothing of another attempt may be
// alive when the first pod of this one is created.
Status Executor::ConfirmAlone(const TrainingJob& job, int64_t attempt) {
  kube::ListOptions options{.label_selector = std::string(api::kLabelJobUid) + "=" + job.uid + "," +
                                              api::kLabelAttempt + "!=" + std::to_string(attempt),
                            .limit = 1};  // one is enough to know, unless someone else has put our labels on it
  std::string left;
  const auto on_pod = [&](const Json& pod) {
    if (OwnedBy(pod, job.uid)) left = json::Text(json::Field(pod, "metadata"), "name");
  };
  do {
    const Result<kube::ListEnd> page = client_.List(kube::kPods, job.ns, options, on_pod);
    if (!page.ok()) return page.status().With("confirm that no pod is left");
    if (!left.empty())
      return Status(Code::kConflict, "pod " + left + " of another attempt is left: the cached pods are old");
    options.continue_token = page->continue_token;
    options.limit = 500;
  } while (!options.continue_token.empty());
  return Status::Ok();
}

IndexSet Executor::Coming(const TrainingJob& job, const IndexSet& shown) {
  const MutexLock lock(mutex_);
  const auto found = memory_.find(job.Key());
  if (found == memory_.end() || found->second.uid != job.uid || found->second.confirmed_attempt != job.status.attempt)
    return {};
  Memory& memory = found->second;
  IndexSet coming;
  std::erase_if(memory.coming, [&](const auto& pod) {
    return shown.contains(pod.first) || SecondsBetween(pod.second, clock_.Steady()) > kCacheLagSeconds;
  });
  for (const auto& [worker, at] : memory.coming) coming.insert(worker);
  return coming;
}

void Executor::Forget(const std::string& key) {
  services_.Forget(key);
  const MutexLock lock(mutex_);
  memory_.erase(key);
}

Status Executor::DeletePods(const TrainingJob& job, const Plan& plan) {
  Mutex mutex;
  Status first;
  InParallel(plan.deletes.size(), parallel_, [&](size_t i) {
    const PodDelete& pod = plan.deletes[i];
    const std::optional<int64_t> grace = pod.force ? std::optional<int64_t>(0) : std::nullopt;
    const Status status = client_.Delete(kube::kPods, job.ns, pod.name, {.uid = pod.uid, .grace_seconds = grace});
    // Another uid has the name: the one we meant is gone.
    if (status.ok() || status.Is(Code::kNotFound) || status.Is(Code::kConflict)) return;
    const MutexLock lock(mutex);
    Keep(first, status.With("delete pod " + pod.name));
  });
  return first;
}

Status Executor::Relabel(const TrainingJob& job, const Plan& plan) {
  for (const PodName& pod : plan.relabels) {
    const Json body = {{"metadata", {{"uid", pod.uid}, {"labels", {{api::kLabelManaged, "true"}}}}}};
    const Status status = client_.MergePatch(kube::kPods, job.ns, pod.name, "", body, {}).status();
    if (!status.ok() && !status.Is(Code::kNotFound)) return status.With("label pod " + pod.name);
  }
  return Status::Ok();
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
  const Result<Json> live = client_.Get(kube::kTrainingJobs, job.ns, job.name);
  if (!live.ok()) return live.status().With("confirm the attempt");
  const bool same = json::Text(json::Field(*live, "metadata"), "uid") == job.uid &&
                    json::Whole(json::Field(*live, "status"), "attempt") == plan.status.attempt &&
                    !json::Flag(json::Field(*live, "spec"), "suspend") && !IsGoing(*live) && !HasEnded(*live);
  if (!same) return Status(Code::kConflict, "the job has moved on: its cached copy is old");
  // Attempts count from 1, so nothing was before the first.
  if (plan.status.attempt > 1) {
    if (Status status = ConfirmAlone(job, plan.status.attempt); !status.ok()) return status;
  }
  const MutexLock lock(mutex_);
  Memory& memory = memory_[job.Key()];
  if (memory.confirmed_attempt != plan.status.attempt) {
    memory.made.clear();
    memory.coming.clear();
  }
  memory.confirmed_attempt = plan.status.attempt;
  memory.confirmed_at = asked;
  return Status::Ok();
}

Status Executor::CreatePods(const TrainingJob& job, const Plan& plan, Outcome& outcome) {
  std::vector<int64_t> ranks = plan.creates;
  Mutex mutex;
  Status first;
  size_t done = 0;
  // Slow start: a quota or a missing right shows at the first pod, not at the thousandth.
  for (size_t batch = 1; done < ranks.size() && first.ok() && outcome.problem.reason.empty(); batch *= 2) {
    first = ConfirmAttempt(job, plan);  // asks again when the last answer is old
    if (!first.ok()) break;
    const size_t count = std::min(batch, ranks.size() - done);
    std::vector<int64_t> late;  // of this batch, once the answer has become old
    InParallel(count, parallel_, [&](size_t i) {
      CreateProblem mine;
      const int64_t rank = ranks[done + i];
      const bool confirmed = IsConfirmed(job, plan);
      const Status status = confirmed
                                ? CreatePod(job, rank, WorkerPod(job, plan.status.attempt, rank, outcome.master), mine)
                                : Status::Ok();
      const MutexLock lock(mutex);
      if (!confirmed) late.push_back(rank);
      Keep(first, status);
      if (outcome.problem.reason.empty()) outcome.problem = mine;
    });
    done += count;
    ranks.insert(ranks.end(), late.begin(), late.end());
  }
  const MutexLock lock(mutex_);
  outcome.made = memory_[job.Key()].made;
  return first;
}

Status Executor::CreatePod(const TrainingJob& job, int64_t rank, const Json& pod, CreateProblem& problem) {
  const std::string name = json::Text(json::Field(pod, "metadata"), "name");
  const Result<Json> created = client_.Create(kube::kPods, job.ns, pod, {});
  switch (created.status().code()) {
    case Code::kOk:
      break;
    case Code::kAlreadyExists: {
      const Result<Json> existing = client_.Get(kube::kPods, job.ns, name);
      if (!existing.ok()) return existing.status().With("get pod " + name);
      if (!OwnedBy(*existing, job.uid) || IsGoing(*existing)) {
        problem = TakenBy("pod", *existing);
        return Status::Ok();
      }
      break;
    }
    case Code::kForbidden:
      problem = {"Forbidden", "create pod " + name + ": " + created.status().message()};
      return Status::Ok();
    case Code::kThrottled:
      problem = {"Throttled", "create pod " + name + ": " + created.status().message()};
      return Status::Ok();
    case Code::kInvalid:
      problem = {"PodRefused", "create pod " + name + ": " + created.status().message()};
      return Status::Ok();
    default:
      return created.status().With("create pod " + name);
  }
  const MutexLock lock(mutex_);
  Memory& memory = memory_[job.Key()];
  memory.made.insert(rank);
  memory.coming[rank] = clock_.Steady();
  return Status::Ok();
}

}  // namespace trainyard::reconcile
