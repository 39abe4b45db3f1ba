// What a job costs the API server, request by request, until all of its workers run.
#include <gtest/gtest.h>
#include <unistd.h>

#include <atomic>

#include "operator/api/labels.h"
#include "tests/operator/builders.h"
#include "tests/operator/reconciler_parts.h"
#include "tests/sim/dice.h"

namespace trainyard::reconcile {
namespace {

// Notes every request but those of caches, which are the same few whatever the jobs do.
class CountingClient : public local::MemoryClient {
 public:
  using MemoryClient::MemoryClient;
  Result<Json> Get(const kube::Resource& resource, const std::string& ns, const std::string& name,
                   const kube::FieldPaths& fields) override {
    Note("get", resource);
    return MemoryClient::Get(resource, ns, name, fields);
  }
  Result<kube::ListEnd> List(const kube::Resource& resource, const std::string& ns, const kube::ListOptions& options,
                             const std::function<void(const Json&)>& on_item) override {
    Note("list", resource);
    return MemoryClient::List(resource, ns, options, on_item);
  }
  Result<Json> Create(const kube::Resource& resource, const std::string& ns, const Json& object,
                      const kube::WriteOptions& options) override {
    Note(options.dry_run ? "dry-run" : "create", resource);
    return MemoryClient::Create(resource, ns, object, options);
  }
  Result<Json> MergePatch(const kube::Resource& resource, const std::string& ns, const std::string& name,
                          const std::string& subresource, const Json& patch,
                          const kube::WriteOptions& options) override {
    Note("patch", resource);
    return MemoryClient::MergePatch(resource, ns, name, subresource, patch, options);
  }
  Status Delete(const kube::Resource& resource, const std::string& ns, const std::string& name,
                const kube::DeleteOptions& options) override {
    Note("delete", resource);
    return MemoryClient::Delete(resource, ns, name, options);
  }
  int64_t total() const {
    int64_t sum = 0;
    for (const auto& [what, count] : counts_) sum += count;
    return sum;
  }
  int64_t of(const std::string& what) const { return counts_.contains(what) ? counts_.at(what) : 0; }
  std::string Describe() const {
    std::string text;
    for (const auto& [what, count] : counts_) text += what + " " + std::to_string(count) + "\n";
    return text;
  }

 private:
  void Note(const std::string& verb, const kube::Resource& resource) {
    const MutexLock lock(mutex_);
    ++counts_[verb + " " + resource.plural];
  }
  Mutex mutex_;
  std::map<std::string, int64_t> counts_;
};

class RequestsTest : public testing::Test {
 protected:
  // Whatever the caches tell, and what is due.
  void Settle() {
    for (int round = 0; round < 20; ++round) {
      for (kube::Reflector* reflector : caches_.reflectors()) reflector->Pump(stop_);
      const std::optional<std::string> key = queue_.TryGet();
      if (!key) return;
      const kube::ReconcileResult result = reconciler_.Reconcile(*key);
      EXPECT_TRUE(result.status.ok()) << result.status.ToString();
      if (result.requeue_after_seconds) queue_.AddAfter(*key, *result.requeue_after_seconds);
      queue_.Done(*key);
    }
  }
  Json Job(const std::string& name) { return api_.Get(kube::kTrainingJobs, "default", name).body; }
  // A scheduler and kubelets that take `seconds` for all of them; whoever watches hears of every one.
  void RunPods(const std::string& job, int64_t workers, double seconds) {
    for (const bool ready : {false, true}) {
      for (int64_t rank = 0; rank < workers; ++rank) {
        Json conditions = Json::array({{{"type", "PodScheduled"}, {"status", "True"}}});
        if (ready) conditions.push_back({{"type", "Ready"}, {"status", "True"}});
        api_.Patch(kube::kPods, "default", api::PodName(job, 1, rank), "status", local::PatchType::kMerge,
                   {{"status", {{"phase", ready ? "Running" : "Pending"}, {"conditions", conditions}}}}, {});
        clock_.Advance(seconds / static_cast<double>(2 * workers));
        if (workers <= 100 || rank % 20 == 0) Settle();
      }
    }
    Settle();
  }

  sim::VirtualClock clock_;
  local::MemoryApi api_{clock_, 1};
  CountingClient client_{api_};
  CacheClient cache_client_{api_};
  kube::StopFlag stop_;
  kube::WorkQueue queue_{clock_};
  Caches caches_{cache_client_, clock_, "", 1, [this](const std::string& key, double) { queue_.Add(key); }};
  NoReports reports_;
  kube::EventRecorder events_{client_, clock_, "test"};
  Logger log_{STDERR_FILENO, Logger::Form::kText, LogLevel::kError};
  Reconciler reconciler_{client_, clock_, caches_, reports_, events_, log_, {.parallel_requests = 4}};
};

TEST_F(RequestsTest, AGangIsOneMore) {
  for (const char* gang : {"native", "volcano", "coscheduling"}) {
    const int64_t before = client_.total();
    Json job = JobObject(gang, 100);
    job["spec"]["scheduling"] = {{"gang", gang}};
    ASSERT_TRUE(api_.Create(kube::kTrainingJobs, "default", job, {}).ok());
    Settle();
    RunPods(gang, 100, 1.5);
    ASSERT_EQ(Job(gang)["status"]["phase"], "Running");
    EXPECT_LE(client_.total() - before, 109) << client_.Describe();
  }
  EXPECT_EQ(client_.of("create podgroups"), 3);
  EXPECT_EQ(client_.of("get podgroups"), 0);
  EXPECT_EQ(client_.of("list podgroups"), 0);
}

TEST_F(RequestsTest, APodWhoseLabelsSomeoneChangesIsTakenBack) {
  ASSERT_TRUE(api_.Create(kube::kTrainingJobs, "default", JobObject("job", 2), {}).ok());
  Settle();
  RunPods("job", 2, 1);
  const Json before = api_.Get(kube::kPods, "default", "job-1-1").body["metadata"]["labels"];
  for (const auto& [label, value] : std::vector<std::pair<std::string, Json>>{
           {api::kLabelManaged, nullptr}, {api::kLabelRank, "9"}, {api::kLabelRank, "0"}, {api::kLabelAttempt, "7"}}) {
    api_.Patch(kube::kPods, "default", "job-1-1", "", local::PatchType::kMerge,
               {{"metadata", {{"labels", {{label, value}}}}}}, {});
    Settle();
    EXPECT_EQ(api_.Get(kube::kPods, "default", "job-1-1").body["metadata"]["labels"], before) << label << " " << value;
  }
  EXPECT_EQ(Job("job")["status"]["restarts"]["total"], 0);
}

class RequestsOfAJob : public RequestsTest, public testing::WithParamInterface<int64_t> {};

TEST_P(RequestsOfAJob, AreSixMoreThanItHasWorkers) {
  const int64_t workers = GetParam();
  ASSERT_TRUE(api_.Create(kube::kTrainingJobs, "default", JobObject("job", workers), {}).ok());
  Settle();
  EXPECT_EQ(client_.of("create pods"), workers);
  EXPECT_EQ(Job("job")["status"]["workers"]["created"], 0) << "one write says that they were created and that they run";
  RunPods("job", workers, 1.5);
  ASSERT_EQ(Job("job")["status"]["phase"], "Running");
  EXPECT_EQ(Job("job")["status"]["workers"]["created"], workers);
  EXPECT_EQ(client_.total(), workers + 6) << client_.Describe();
  EXPECT_EQ(client_.of("patch pods"), 0);
  EXPECT_EQ(client_.of("list pods"), 0);
  EXPECT_EQ(client_.of("get trainingjobs"), 0) << "the answer to the write of the attempt says as much";
  EXPECT_EQ(client_.of("create events"), 1) << "Running";
}

// The end and its event, and the address of <job>-master given back.
TEST_F(RequestsTest, AnEndIsThree) {
  ASSERT_TRUE(api_.Create(kube::kTrainingJobs, "default", JobObject("job", 2), {}).ok());
  Settle();
  RunPods("job", 2, 1.5);
  const int64_t before = client_.total();
  for (const int64_t rank : {0, 1}) {
    const Json ended = {
        {"phase", "Succeeded"},
        {"containerStatuses",
         {{{"name", "trainer"},
           {"state",
            {{"terminated", {{"exitCode", 0}, {"reason", "Completed"}, {"finishedAt", FormatTime(clock_.Now())}}}}}}}}};
    api_.Patch(kube::kPods, "default", api::PodName("job", 1, rank), "status", local::PatchType::kMerge,
               {{"status", ended}}, {});
  }
  Settle();
  ASSERT_EQ(Job("job")["status"]["phase"], "Succeeded");
  EXPECT_EQ(client_.of("delete services"), 1);
  EXPECT_EQ(client_.total() - before, 3) << client_.Describe();
}

INSTANTIATE_TEST_SUITE_P(Workers, RequestsOfAJob, testing::Values(2, 100, 1000));

// However long the pods take, people who watch see them come.
TEST_F(RequestsTest, AStatusIsWrittenNowAndThenWhilePodsCome) {
  ASSERT_TRUE(api_.Create(kube::kTrainingJobs, "default", JobObject("job", 100), {}).ok());
  Settle();
  const int64_t before = client_.of("patch trainingjobs");
  RunPods("job", 100, 60);
  ASSERT_EQ(Job("job")["status"]["phase"], "Running");
  EXPECT_EQ(client_.of("patch trainingjobs") - before, 7) << "after 5, 10, 20, 30, 40 and 50 s, and at the end";
}

TEST_F(RequestsTest, OneTemplateIsCheckedOnce) {
  for (const char* name : {"a", "b", "c"}) {
    Json job = JobObject(name, 1);
    if (std::string(name) == "c") job["spec"]["template"]["spec"]["containers"][0]["image"] = "another";
    ASSERT_TRUE(api_.Create(kube::kTrainingJobs, "default", job, {}).ok());
  }
  Settle();
  EXPECT_EQ(client_.of("create pods"), 3);
  EXPECT_EQ(client_.of("dry-run pods"), 2);
}

// The peers of a pod that is deleted before any cache has shown it are not to blame.
TEST_F(RequestsTest, APodThatNoCacheHasSeenIsMissed) {
  ASSERT_TRUE(api_.Create(kube::kTrainingJobs, "default", JobObject("job", 2), {}).ok());
  for (kube::Reflector* reflector : caches_.reflectors()) reflector->Pump(stop_);
  while (client_.of("create pods") < 2) {
    caches_.reflectors()[0]->Pump(stop_);
    const std::optional<std::string> key = queue_.TryGet();
    ASSERT_TRUE(key);
    reconciler_.Reconcile(*key);
    queue_.Done(*key);
  }
  ASSERT_TRUE(api_.Delete(kube::kPods, "default", "job-1-0", {.grace_seconds = 0}).ok());
  const Json ended = {
      {"phase", "Failed"},
      {"containerStatuses",
       {{{"name", "trainer"},
         {"state",
          {{"terminated", {{"exitCode", 69}, {"reason", "Error"}, {"finishedAt", FormatTime(clock_.Now())}}}}}}}}};
  ASSERT_TRUE(
      api_.Patch(kube::kPods, "default", "job-1-1", "status", local::PatchType::kMerge, {{"status", ended}}, {}).ok());
  for (int second = 0; second < 20; ++second) {
    Settle();
    const Json workers = Job("job")["status"]["workers"];
    if (workers.value("failed", 0) > 0) {
      EXPECT_EQ(workers["created"], 2) << "by which whoever takes over judges";
    }
    clock_.Advance(1);
  }
  const Json status = Job("job")["status"];
  EXPECT_EQ(status["attempt"], 2);
  EXPECT_EQ(status["lastFailure"]["reason"], "PodVanished") << status.dump();
  EXPECT_EQ(status["restarts"].value("charged", 0), 0);
}

}  // namespace
}  // namespace trainyard::reconcile
