// The executor against the in-memory API.
#include "operator/reconcile/apply.h"

#include <gtest/gtest.h>
#include <pthread.h>

#include <chrono>
#include <latch>
#include <optional>
#include <stdexcept>
#include <system_error>
#include <thread>
#include <tuple>
#include <vector>

#include "operator/api/labels.h"
#include "operator/base/json_access.h"
#include "operator/reconcile/conditions.h"
#include "tests/operator/apply_fixture.h"

namespace trainyard::reconcile {
namespace {

// Each pod takes so long to create, and at the n-th something happens elsewhere.
class SlowClient : public local::MemoryClient {
 public:
  SlowClient(local::MemoryApi& api, sim::VirtualClock& clock) : MemoryClient(api), clock_(clock) {}
  Result<Json> Create(const kube::Resource& resource, const std::string& ns, const Json& object,
                      const kube::WriteOptions& options) override {
    if (resource == kube::kPods) {
      clock_.Advance(seconds);
      if (++pods == meanwhile_at) meanwhile();
    }
    return MemoryClient::Create(resource, ns, object, options);
  }
  double seconds = 1;
  int pods = 0, meanwhile_at = 0;
  std::function<void()> meanwhile;

 private:
  sim::VirtualClock& clock_;
};

TEST_F(ApplyTest, CreatesTheServiceAndThePodsOnce) {
  ASSERT_TRUE(executor_.Apply(job_, Creates(20), outcome_).ok());
  EXPECT_EQ(outcome_.problem.reason, "");
  EXPECT_EQ(PodCount(), 20u);
  EXPECT_EQ(api_.Get(kube::kServices, "default", "job").http, 200);
  EXPECT_EQ(outcome_.made.size(), 20u);
  // The cache does not show all of them yet: those are not missing.
  Observed observed;
  observed.job = job_;
  observed.current.resize(20);
  observed.current[2] = std::make_shared<const PodRecord>();
  executor_.Recall(observed);
  EXPECT_EQ(observed.made.size(), 20u);
  EXPECT_EQ(observed.coming.size(), 19u);
  EXPECT_FALSE(observed.coming.contains(2));
  FindMissing(observed);
  EXPECT_TRUE(observed.missing.empty());
  // One that was shown and is gone is missing, though the status may not say yet that all were there.
  Observed later = observed;
  later.coming.clear();
  later.current[2] = nullptr;
  executor_.Recall(later);
  FindMissing(later);
  EXPECT_EQ(later.missing, std::vector<int64_t>{2});
  clock_.Advance(kCacheLagSeconds + 1);
  later.coming.clear();
  executor_.Recall(later);
  FindMissing(later);
  EXPECT_EQ(later.missing.size(), 20u) << "those that never came are to be asked for";
  // Another operator finds them there, and they are ours.
  Executor other(client_, clock_, 4);
  EXPECT_TRUE(other.Apply(job_, Creates(20), outcome_).ok());
  EXPECT_EQ(outcome_.problem.reason, "");
  EXPECT_EQ(PodCount(), 20u);
}

TEST_F(ApplyTest, ThousandsOfPodsTakeTurnsWithOtherJobs) {
  client_.quota = 2000;
  Plan plan = Creates(1200);
  for (const size_t made : {500, 1000, 1200}) {
    ASSERT_TRUE(executor_.Apply(job_, plan, outcome_).ok());
    EXPECT_EQ(PodCount(), made);
    EXPECT_EQ(outcome_.made.size(), made);
    EXPECT_EQ(outcome_.more, made < 1200) << made;
    plan.creates.erase(plan.creates.begin(),
                       plan.creates.begin() + std::min<std::ptrdiff_t>(500, std::ssize(plan.creates)));
  }
  Plan away;
  away.status = job_.status;
  const Json pods = api_.List(kube::kPods, "", {}).body["items"];
  for (const Json& pod : pods) away.deletes.push_back({pod["metadata"]["name"], pod["metadata"]["uid"]});
  away.creates = {1200};
  for (const size_t left : {700, 200, 0}) {
    ASSERT_TRUE(executor_.Apply(job_, away, outcome_).ok());
    EXPECT_EQ(outcome_.more, left > 0);
    EXPECT_EQ(PodCount(), left == 0 ? 1 : left) << "nothing is created before all that has to go was asked to";
    away.deletes.erase(away.deletes.begin(),
                       away.deletes.begin() + std::min<std::ptrdiff_t>(500, std::ssize(away.deletes)));
  }
}

TEST_F(ApplyTest, AQuotaShowsBeforeAllPodsWereTried) {
  client_.quota = 2;
  ASSERT_TRUE(executor_.Apply(job_, Creates(20), outcome_).ok());
  EXPECT_EQ(outcome_.problem.reason, "Forbidden");
  EXPECT_NE(outcome_.problem.message.find("exceeded quota"), std::string::npos);
  EXPECT_EQ(PodCount(), 2u);
  EXPECT_EQ(client_.pods, 3) << "one, then two at a time, and no more after the refusal";
}

TEST_F(ApplyTest, SomeoneElsesNameIsLeftAlone) {
  const Json pod = {{"apiVersion", "v1"},
                    {"kind", "Pod"},
                    {"metadata", {{"name", "job-1-0"}}},
                    {"spec", {{"containers", Json::array({{{"name", "c"}, {"image", "x"}}})}}}};
  const std::string uid = api_.Create(kube::kPods, "default", pod, {}).body["metadata"]["uid"];
  ASSERT_TRUE(executor_.Apply(job_, Creates(1), outcome_).ok());
  EXPECT_EQ(outcome_.problem.reason, "NameInUse");
  EXPECT_NE(outcome_.problem.message.find(uid), std::string::npos) << outcome_.problem.message;
  // A delete that means another object does not touch this one.
  Plan plan;
  plan.deletes = {{"job-1-0", "another-uid"}};
  EXPECT_TRUE(executor_.Apply(job_, plan, outcome_).ok());
  EXPECT_EQ(PodCount(), 1u);
  plan.deletes = {{"job-1-0", uid}};
  EXPECT_TRUE(executor_.Apply(job_, plan, outcome_).ok());
  EXPECT_EQ(PodCount(), 0u);
}

TEST_F(ApplyTest, WhatIsRefusedIsTriedAgainLessAndLess) {
  client_.quota = 0;
  double waited = 0;
  for (int round = 0; round < 8; ++round) {
    outcome_ = {};
    ASSERT_TRUE(executor_.Apply(job_, Creates(20), outcome_).ok());
    EXPECT_EQ(outcome_.problem.reason, "Forbidden");
    EXPECT_EQ(client_.pods, round + 1);
    EXPECT_GT(outcome_.problem.retry_seconds, std::min(waited, 40.0));
    waited = outcome_.problem.retry_seconds;
    clock_.Advance(waited / 2);
    outcome_ = {};
    ASSERT_TRUE(executor_.Apply(job_, Creates(20), outcome_).ok());
    EXPECT_EQ(outcome_.problem.reason, "Forbidden") << "and it is still said";
    EXPECT_EQ(client_.pods, round + 1) << "whoever asks in between costs nothing";
    clock_.Advance(waited / 2 + 0.1);
  }
  outcome_ = {};
  ASSERT_TRUE(executor_.Apply(job_, {.status = job_.status}, outcome_).ok());
  EXPECT_EQ(outcome_.problem.reason, "")
      << "a plan that wants no pods, of a job that has ended perhaps, has no such problem";
  client_.quota = 1000;
  outcome_ = {};
  ASSERT_TRUE(executor_.Apply(job_, Creates(20), outcome_).ok());
  EXPECT_EQ(outcome_.problem.reason, "");
  EXPECT_EQ(PodCount(), 20u);
}

TEST_F(ApplyTest, TheConfirmationHoldsWithinABatch) {
  SlowClient slow(api_, clock_);
  Executor executor(slow, clock_, 1);
  const TrainingJob old = job_;
  ASSERT_TRUE(executor.Apply(old, Creates(1), outcome_).ok());
  clock_.Advance(kConfirmedSeconds - 3);
  slow.meanwhile_at = 3;  // in the middle of a batch
  slow.meanwhile = [&] { SetAttempt(2); };
  EXPECT_TRUE(executor.Apply(old, Creates(20), outcome_).Is(Code::kConflict));
  EXPECT_LE(slow.pods, 5) << "the answer is ten seconds old by then, at a second a pod";
}

// Each pod takes longer than a turn and than the confirmation counts: each turn makes one, and then others have theirs.
TEST_F(ApplyTest, ASlowServerGetsAllPodsOneByOne) {
  SlowClient slow(api_, clock_);
  slow.seconds = kConfirmedSeconds + 1;
  Executor executor(slow, clock_, 1);
  for (int64_t made = 1; made <= 30; ++made) {
    Plan plan = Creates(30);
    plan.creates.erase(plan.creates.begin(), plan.creates.begin() + made - 1);
    const Status status = executor.Apply(job_, plan, outcome_);
    EXPECT_TRUE(status.ok()) << status.ToString();
    EXPECT_EQ(PodCount(), static_cast<size_t>(made));
    EXPECT_EQ(outcome_.more, made < 30);
    EXPECT_EQ(outcome_.slowest_pod, slow.seconds);
  }
}

// How many pods are on their way at the same time, at most.
class CountingClient : public local::MemoryClient {
 public:
  using MemoryClient::MemoryClient;
  Result<Json> Create(const kube::Resource& resource, const std::string& ns, const Json& object,
                      const kube::WriteOptions& options) override {
    if (resource != kube::kPods) return MemoryClient::Create(resource, ns, object, options);
    {
      const MutexLock lock(mutex_);
      most = std::max(most, ++now_);
    }
    // The first of each job is there when the first of every other is.
    if (together && json::Text(json::Field(object, "metadata"), "name").ends_with("-0")) together->arrive_and_wait();
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
    {
      const MutexLock lock(mutex_);
      --now_;
    }
    return MemoryClient::Create(resource, ns, object, options);
  }
  std::optional<std::latch> together;
  int most = 0;

 private:
  Mutex mutex_;
  int now_ = 0;
};

// As trees they are many times their text.
TEST_F(ApplyTest, LargePodsAreMadeAFewAtATime) {
  job_.spec.pod_template["metadata"]["annotations"]["a"] = std::string(100'000, 'a');
  CountingClient client(api_);
  Executor executor(client, clock_, 16);
  EXPECT_TRUE(executor.Apply(job_, Creates(40), outcome_).ok());
  EXPECT_EQ(PodCount(), 40u);
  EXPECT_LE(client.most, 2);
}

// Sixteen workers with sixteen requests each would wait for connections, and take their own queue for a slow server.
TEST_F(ApplyTest, JobsWhosePodsAreMadeAtTheSameTimeShareTheRequests) {
  constexpr int kJobs = 8;
  CountingClient client(api_);
  client.together.emplace(kJobs);
  Executor executor(client, clock_, 16);
  std::vector<std::thread> workers;
  for (int i = 0; i < kJobs; ++i) {
    const std::string name = "many" + std::to_string(i);
    api_.Create(kube::kTrainingJobs, "default", JobObject(name, 40), {});
    api_.Patch(kube::kTrainingJobs, "default", name, "status", local::PatchType::kMerge,
               {{"status", {{"attempt", 1}, {"observedGeneration", 1}}}}, {});
    workers.emplace_back([&, job = WholeJob(api_.Get(kube::kTrainingJobs, "default", name).body)] {
      Plan plan = Creates(40);
      plan.status = job.status;
      Outcome outcome;
      EXPECT_TRUE(executor.Apply(job, plan, outcome).ok());
    });
  }
  for (std::thread& worker : workers) worker.join();
  EXPECT_EQ(PodCount(), size_t{40} * kJobs);
  EXPECT_LE(client.most, 4 * kJobs);
  EXPECT_GE(client.most, kJobs);
}

// Gives a page of a list, whatever it was asked for.
class PagingClient : public local::MemoryClient {
 public:
  using MemoryClient::MemoryClient;
  Result<kube::ListEnd> List(const kube::Resource&, const std::string&, const kube::ListOptions&,
                             const std::function<void(const Json&)>&) override {
    return kube::ListEnd{"5", "next"};
  }
};

TEST_F(ApplyTest, APartOfAListConfirmsNothing) {
  SetAttempt(2);  // pods of the first may be left
  PagingClient client(api_);
  Executor executor(client, clock_, 1);
  const Status status = executor.Apply(job_, Creates(1), outcome_);
  EXPECT_TRUE(status.Is(Code::kInternal)) << status.ToString();
  EXPECT_EQ(PodCount(), 0u);
}

TEST_F(ApplyTest, APodThatLostItsLabelGetsItBack) {
  ASSERT_TRUE(executor_.Apply(job_, Creates(1), outcome_).ok());
  const Json pod = api_.Get(kube::kPods, "default", "job-1-0").body;
  api_.Patch(kube::kPods, "default", "job-1-0", "", local::PatchType::kMerge,
             {{"metadata", {{"labels", {{"trainyard.dev/managed", nullptr}}}}}}, {});
  Plan plan;
  plan.relabels = {{"job-1-0", pod["metadata"]["uid"]}, {"job-1-1", "gone"}};
  ASSERT_TRUE(executor_.Apply(job_, plan, outcome_).ok());
  EXPECT_EQ(api_.Get(kube::kPods, "default", "job-1-0").body["metadata"]["labels"]["trainyard.dev/managed"], "true");
}

TEST_F(ApplyTest, AnOldCopyOfTheJobCreatesNothing) {
  const TrainingJob old = job_;
  const Plan plan = Creates(1);
  SetAttempt(2);
  EXPECT_TRUE(executor_.Apply(old, plan, outcome_).Is(Code::kConflict));
  EXPECT_EQ(PodCount(), 0u);
}

// The answer to a write of the first attempt counts as long as a read's; that of a later one says nothing of old pods.
TEST_F(ApplyTest, AnAnswerThatWasHeardNeedsNoQuestion) {
  const Json written = api_.Get(kube::kTrainingJobs, "default", "job").body;
  const TrainingJob first = job_;
  const Plan plan = Creates(1);
  for (const auto& [why, seconds, change] : std::vector<std::tuple<const char*, double, Json>>{
           {"too old", kConfirmedSeconds + 1, Json::object()},
           {"suspended", 0, {{"spec", {{"suspend", true}}}}},
           {"another job", 0, {{"metadata", {{"uid", "other"}}}}},
           {"being deleted", 0, {{"metadata", {{"deletionTimestamp", "2026-01-01T00:00:00Z"}}}}},
           {"a later attempt", 0, {{"status", {{"attempt", 2}}}}},
           {"good", 0, Json::object()}}) {
    SetAttempt(2);
    Executor executor(client_, clock_, 1);
    Json answer = written;
    answer.merge_patch(change);
    executor.Hear(first, answer, clock_.Steady());
    clock_.Advance(seconds);
    const bool asks = executor.Apply(first, plan, outcome_).Is(Code::kConflict);
    EXPECT_EQ(asks, std::string(why) != "good") << why;
  }
  EXPECT_EQ(PodCount(), 1u);
  Executor executor(client_, clock_, 1);
  executor.Hear(job_, api_.Get(kube::kTrainingJobs, "default", "job").body, clock_.Steady());
  EXPECT_TRUE(executor.Apply(job_, Creates(1), outcome_).Is(Code::kConflict)) << "the pod of attempt 1 is left";
}

// A first list may be older than the job's end, when its pods are cleaned up already.
TEST_F(ApplyTest, AJobThatHasEndedGetsNoPods) {
  const Json conditions = Json::array({{{"type", "Complete"},
                                        {"status", "True"},
                                        {"reason", "AllWorkersSucceeded"},
                                        {"message", ""},
                                        {"lastTransitionTime", "2026-01-01T00:00:00Z"}}});
  ASSERT_TRUE(api_.Patch(kube::kTrainingJobs, "default", "job", "status", local::PatchType::kMerge,
                         {{"status", {{"conditions", conditions}}}}, {})
                  .ok());
  EXPECT_TRUE(executor_.Apply(job_, Creates(2), outcome_).Is(Code::kConflict));
  EXPECT_EQ(PodCount(), 0u);
}

TEST_F(ApplyTest, AnOperatorThatWasFrozenAsksAgain) {
  client_.quota = 1;
  ASSERT_TRUE(executor_.Apply(job_, Creates(4), outcome_).ok());
  client_.quota = 1000;
  outcome_ = {};
  const TrainingJob old = job_;
  const Plan plan = Creates(4);
  SetAttempt(2);
  clock_.Advance(9);  // the wait after the refusal is over as well
  EXPECT_TRUE(executor_.Apply(old, plan, outcome_).ok()) << "the answer of nine seconds ago still counts";
  EXPECT_EQ(PodCount(), 4u);
  clock_.Advance(2);
  EXPECT_TRUE(executor_.Apply(old, plan, outcome_).Is(Code::kConflict));
}

TEST_F(ApplyTest, APodOfAnotherAttemptHoldsTheNextOneBack) {
  ASSERT_TRUE(executor_.Apply(job_, Creates(1), outcome_).ok());
  SetAttempt(2);
  EXPECT_TRUE(executor_.Apply(job_, Creates(1), outcome_).Is(Code::kConflict));
  EXPECT_EQ(PodCount(), 1u);
}

// A job may be called like another job's service.
TEST_F(ApplyTest, TwoJobsThatWantOneNameSayWhose) {
  const Json second = api_.Create(kube::kTrainingJobs, "default", JobObject("job-master", 1), {}).body;
  ASSERT_TRUE(executor_.Apply(job_, Creates(1), outcome_).ok());
  api_.Patch(kube::kTrainingJobs, "default", "job-master", "status", local::PatchType::kMerge,
             {{"status", {{"attempt", 1}}}}, {});
  const TrainingJob later = WholeJob(api_.Get(kube::kTrainingJobs, "default", "job-master").body);
  Plan plan = Creates(1);
  plan.status = later.status;
  ASSERT_TRUE(executor_.Apply(later, plan, outcome_).ok());
  EXPECT_EQ(outcome_.problem.reason, "NameInUse");
  EXPECT_NE(outcome_.problem.message.find("which belongs to TrainingJob job;"), std::string::npos)
      << outcome_.problem.message;
}

TEST_F(ApplyTest, ForceTakesAPodFromANodeThatDoesNotAnswer) {
  ASSERT_TRUE(executor_.Apply(job_, Creates(1), outcome_).ok());
  api_.Patch(kube::kPods, "default", "job-1-0", "", local::PatchType::kMerge, {{"spec", {{"nodeName", "n"}}}}, {});
  const std::string uid = api_.Get(kube::kPods, "default", "job-1-0").body["metadata"]["uid"];
  Plan plan;
  plan.deletes = {{.name = "job-1-0", .uid = uid, .force = false}};
  ASSERT_TRUE(executor_.Apply(job_, plan, outcome_).ok());
  EXPECT_EQ(PodCount(), 1u) << "it has its grace";
  plan.deletes = {{.name = "job-1-0", .uid = "another", .force = true}};
  ASSERT_TRUE(executor_.Apply(job_, plan, outcome_).ok());
  EXPECT_EQ(PodCount(), 1u) << "only the very pod";
  plan.deletes = {{.name = "job-1-0", .uid = uid, .force = true}};
  ASSERT_TRUE(executor_.Apply(job_, plan, outcome_).ok());
  EXPECT_EQ(PodCount(), 0u);
}

// What kept an attempt's pods from being made says nothing of the next one's, nor of their deletion.
TEST_F(ApplyTest, AProblemEndsWithItsAttempt) {
  client_.quota = 0;
  ASSERT_TRUE(executor_.Apply(job_, Creates(1), outcome_).ok());
  EXPECT_EQ(outcome_.problem.reason, "Forbidden");
  EXPECT_TRUE(outcome_.problem.news);
  client_.quota = 1000;
  SetAttempt(2);
  outcome_ = {};
  ASSERT_TRUE(executor_.Apply(job_, Creates(1), outcome_).ok());
  EXPECT_EQ(outcome_.problem.reason, "") << outcome_.problem.message;
  EXPECT_EQ(PodCount(), 1u);
}

// A plan that wants nothing forgets it.
TEST_F(ApplyTest, AProblemEndsWithWhatWasWanted) {
  client_.quota = 0;
  ASSERT_TRUE(executor_.Apply(job_, Creates(1), outcome_).ok());
  ASSERT_TRUE(executor_.Apply(job_, {.status = job_.status}, outcome_).ok());
  client_.quota = 1000;
  outcome_ = {};
  ASSERT_TRUE(executor_.Apply(job_, Creates(1), outcome_).ok());
  EXPECT_EQ(outcome_.problem.reason, "") << outcome_.problem.message;
}

// Fails to delete, and notes how often it was asked.
class UndeletingClient : public local::MemoryClient {
 public:
  using MemoryClient::MemoryClient;
  Status Delete(const kube::Resource&, const std::string&, const std::string& name,
                const kube::DeleteOptions&) override {
    ++deletes;
    return only.empty() || only == name ? failure : Status::Ok();
  }
  Status failure;
  std::string only;
  std::atomic<int> deletes{0};
};

// An outage, or a server that has enough, is not asked ten thousand times; one pod that is protected keeps no other.
TEST_F(ApplyTest, DeletionsEndWithTheFirstError) {
  Plan plan;
  plan.status = job_.status;
  for (int i = 0; i < 400; ++i) plan.deletes.push_back({"pod-" + std::to_string(i), "uid"});
  const struct {
    Code code;
    const char *only, *reason;
    int most, least;
    bool fails;
  } cases[] = {
      {Code::kUnavailable, "", "", 4, 1, true},
      {Code::kDeadline, "", "", 4, 1, true},
      {Code::kThrottled, "", "Throttled", 4, 1, false},
      {Code::kForbidden, "", "Forbidden", 20, 16, false},
      {Code::kInvalid, "pod-3", "PodRefused", 400, 400, false},
  };
  for (const auto& c : cases) {
    UndeletingClient client(api_);
    client.failure = Status(c.code, "no");
    client.only = c.only;
    Executor executor(client, clock_, 4);
    Outcome outcome;
    EXPECT_EQ(executor.Apply(job_, plan, outcome).ok(), !c.fails) << CodeName(c.code);
    EXPECT_EQ(outcome.problem.reason, c.reason) << CodeName(c.code);
    EXPECT_LE(client.deletes, c.most) << CodeName(c.code);
    EXPECT_GE(client.deletes, c.least) << CodeName(c.code);
  }
}

// Serves a few pods and then nothing but errors.
class BreakingClient : public local::MemoryClient {
 public:
  using MemoryClient::MemoryClient;
  Result<Json> Create(const kube::Resource& resource, const std::string& ns, const Json& object,
                      const kube::WriteOptions& options) override {
    if (resource == kube::kPods && ++pods > 64) {
      if (throws) throw std::runtime_error("a defect");
      return failure;
    }
    return MemoryClient::Create(resource, ns, object, options);
  }
  Status failure;
  bool throws = false;
  std::atomic<int> pods{0};
};

TEST_F(ApplyTest, ABatchEndsWithTheFirstError) {
  for (const Code code : {Code::kUnavailable, Code::kForbidden, Code::kThrottled}) {
    BreakingClient client(api_);
    client.failure = Status(code, "no");
    Executor executor(client, clock_, 4);
    Outcome outcome;
    EXPECT_EQ(executor.Apply(job_, Creates(127), outcome).ok(), code != Code::kUnavailable);
    EXPECT_LE(client.pods, 64 + 4) << CodeName(code) << ", of 127 in seven batches";
    EXPECT_EQ(outcome.made.size(), 64u);
    for (int64_t rank = 0; rank < 127; ++rank) {
      if (outcome.made.contains(rank))
        api_.Delete(kube::kPods, "default", api::PodName("job", 1, rank), {.grace_seconds = 0});
    }
  }
}

TEST_F(ApplyTest, AnExceptionInAThreadIsAnError) {
  BreakingClient client(api_);
  client.throws = true;
  Executor executor(client, clock_, 4);
  const Status status = executor.Apply(job_, Creates(127), outcome_);
  EXPECT_TRUE(status.Is(Code::kInternal)) << status.ToString();
  EXPECT_NE(status.message().find("a defect"), std::string::npos) << status.message();
}

// A container may have no more threads.
TEST_F(ApplyTest, PodsAreMadeWithTheThreadsThatThereAre) {
  pthread_attr_t before, huge;
  ASSERT_EQ(pthread_getattr_default_np(&before), 0);
  ASSERT_EQ(pthread_attr_init(&huge), 0);
  ASSERT_EQ(pthread_attr_setstacksize(&huge, size_t{1} << 47), 0);
  ASSERT_EQ(pthread_setattr_default_np(&huge), 0);  // no thread begins now
  EXPECT_THROW(std::thread([] {}).join(), std::system_error);
  const Status status = executor_.Apply(job_, Creates(20), outcome_);
  ASSERT_EQ(pthread_setattr_default_np(&before), 0);
  pthread_attr_destroy(&huge);
  pthread_attr_destroy(&before);
  EXPECT_TRUE(status.ok()) << status.ToString();
  EXPECT_EQ(PodCount(), 20u);
}

// Takes longer to say that the attempt is the newest than that counts; not for ever, so that the test ends.
class SlowConfirmation : public local::MemoryClient {
 public:
  SlowConfirmation(local::MemoryApi& api, sim::VirtualClock& clock) : MemoryClient(api), clock_(clock) {}
  Result<Json> Get(const kube::Resource& resource, const std::string& ns, const std::string& name,
                   const kube::FieldPaths& fields) override {
    if (resource == kube::kTrainingJobs && ++asked < 50) clock_.Advance(kConfirmedSeconds + 1);
    return MemoryClient::Get(resource, ns, name, fields);
  }
  int asked = 0;

 private:
  sim::VirtualClock& clock_;
};

TEST_F(ApplyTest, AConfirmationThatComesTooLateIsNotAskedForEver) {
  SlowConfirmation client(api_, clock_);
  Executor executor(client, clock_, 1);
  const Status status = executor.Apply(job_, Creates(20), outcome_);
  EXPECT_TRUE(status.Is(Code::kDeadline)) << status.ToString();
  EXPECT_LE(client.asked, 3);
  EXPECT_EQ(PodCount(), 0u);
}

}  // namespace
}  // namespace trainyard::reconcile
