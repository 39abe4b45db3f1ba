// What a job costs the API server, request by request, until all of its workers run.
#include <gtest/gtest.h>
#include <unistd.h>

#include <atomic>

#include "operator/api/labels.h"
#include "operator/local/memory_client.h"
#include "operator/reconcile/reconciler.h"
#include "tests/operator/builders.h"
#include "tests/sim/dice.h"

namespace trainyard::reconcile {
namespace {

// Notes every request but those of caches, which are the same few whatever the jobs do.
class CountingClient : public local::MemoryClient {
 public:
  using MemoryClient::MemoryClient;
  Result<Json> Get(const kube::Resource& resource, const std::string& ns, const std::string& name) override {
    Note("get", resource);
    return MemoryClient::Get(resource, ns, name);
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

// A watch that delivers what there is.
class CacheClient : public local::MemoryClient {
 public:
  using MemoryClient::MemoryClient;
  Status Watch(const kube::Resource& resource, const std::string& ns, const kube::WatchOptions& options,
               const std::function<bool(kube::WatchEvent)>& on_event, const kube::StopFlag& stop) override {
    kube::WatchOptions now = options;
    now.timeout_seconds = 0;
    return MemoryClient::Watch(resource, ns, now, on_event, stop);
  }
};

class NoReports : public ReportSource {
 public:
  std::optional<Report> Get(const std::string&) const override { return std::nullopt; }
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
  Caches caches_{cache_client_, clock_, "", 1, [this](const std::string& key) { queue_.Add(key); }};
  NoReports reports_;
  kube::EventRecorder events_{client_, clock_, "test"};
  Logger log_{STDERR_FILENO, Logger::Form::kText, LogLevel::kError};
  Reconciler reconciler_{client_, clock_, caches_, reports_, events_, log_, {.parallel_requests = 4}};
};

class RequestsOfAJob : public RequestsTest, public testing::WithParamInterface<int64_t> {};

TEST_P(RequestsOfAJob, AreTenMoreThanItHasWorkers) {
  const int64_t workers = GetParam();
  ASSERT_TRUE(api_.Create(kube::kTrainingJobs, "default", JobObject("job", workers), {}).ok());
  Settle();
  EXPECT_EQ(client_.of("create pods"), workers);
  EXPECT_EQ(Job("job")["status"]["workers"]["created"], workers) << "before any cache has shown one";
  RunPods("job", workers, 1.5);
  ASSERT_EQ(Job("job")["status"]["phase"], "Running");
  EXPECT_LE(client_.total(), workers + 10) << client_.Describe();
  EXPECT_EQ(client_.of("patch pods"), 0);
  EXPECT_EQ(client_.of("list pods"), 0);
  EXPECT_EQ(client_.of("create events"), 2) << "one for the pods, one for their running";
}

INSTANTIATE_TEST_SUITE_P(Workers, RequestsOfAJob, testing::Values(2, 100, 1000));

// However long the pods take, the status is written once a second.
TEST_F(RequestsTest, AStatusIsWrittenOnceASecondWhilePodsCome) {
  ASSERT_TRUE(api_.Create(kube::kTrainingJobs, "default", JobObject("job", 100), {}).ok());
  Settle();
  const int64_t before = client_.of("patch trainingjobs");
  RunPods("job", 100, 10);
  ASSERT_EQ(Job("job")["status"]["phase"], "Running");
  EXPECT_LE(client_.of("patch trainingjobs") - before, 12);
  EXPECT_GE(client_.of("patch trainingjobs") - before, 5) << "people watch";
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
    clock_.Advance(1);
  }
  const Json status = Job("job")["status"];
  EXPECT_EQ(status["attempt"], 2);
  EXPECT_EQ(status["lastFailure"]["reason"], "PodVanished") << status.dump();
  EXPECT_EQ(status["restarts"].value("charged", 0), 0);
}

}  // namespace
}  // namespace trainyard::reconcile
