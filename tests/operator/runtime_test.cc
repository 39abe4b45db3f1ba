// The operator as a whole, on an API in memory.
#include "operator/runtime.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <atomic>

#include "operator/local/api/memory_client.h"
#include "tests/operator/builders.h"

namespace trainyard {
namespace {

// What /metrics says of a line that begins so; -1 when there is none.
double Value(const std::string& metrics, const std::string& begin) {
  const size_t at = ("\n" + metrics).find("\n" + begin);
  return at == std::string::npos ? -1 : std::stod(metrics.substr(metrics.find(' ', at)));
}

bool Comes(const std::function<bool()>& what) {
  const Instant start = SteadyNow();
  while (SecondsBetween(start, SteadyNow()) < 60) {
    if (what()) return true;
    usleep(1000);
  }
  return false;
}

// A job that somebody else manages needs nothing and wakes nobody: only the resync looks at it again.
TEST(Runtime, LooksAtEveryJobAgainNowAndThen) {
  const SystemClock clock;
  const Logger log(STDERR_FILENO, Logger::Form::kJson, LogLevel::kError);
  local::MemoryApi api(clock, 1);
  local::MemoryClient client(api);
  nlohmann::json job = reconcile::JobObject("job", 2);
  job["spec"]["managedBy"] = "someone/else";
  ASSERT_TRUE(client.Create(kube::kTrainingJobs, "default", job, {}).ok());
  StopFlag stop;
  Runtime runtime(client, client, clock, log, stop, {.resync_seconds = 0.01});
  runtime.Start();
  const auto reconciles = [&] { return Value(runtime.Metrics(), "trainyard_reconcile_seconds_count{outcome=\"ok\"}"); };
  EXPECT_TRUE(Comes([&] { return reconciles() >= 3; })) << runtime.Metrics();
  runtime.Stop();
}

// An API server that nobody reaches.
class SilentClient : public local::MemoryClient {
 public:
  using MemoryClient::MemoryClient;
  Result<kube::ListEnd> List(const kube::Resource&, const std::string&, const kube::ListOptions&,
                             const std::function<void(const nlohmann::json&)>&) override {
    return Status(Code::kUnavailable, "connection refused");
  }
  Status Watch(const kube::Resource&, const std::string&, const kube::WatchOptions&,
               const std::function<bool(kube::WatchEvent)>&, const kube::StopFlag&) override {
    return Status(Code::kUnavailable, "connection refused");
  }
};

TEST(Runtime, HowLongAServerIsSilentThatNeverSpokeIsNotKnown) {
  const SystemClock clock;
  const Logger log(STDERR_FILENO, Logger::Form::kJson, LogLevel::kError);
  local::MemoryApi api(clock, 1);
  SilentClient client(api);
  StopFlag stop;
  Runtime runtime(client, client, clock, log, stop, {});
  const auto value = [&](const char* begin) { return Value(runtime.Metrics(), begin); };
  runtime.Start();
  EXPECT_TRUE(Comes([&] { return value("trainyard_watch_failing_seconds{resource=\"pods\"}") > 0; }));
  EXPECT_EQ(value("trainyard_watch_idle_seconds{"), -1) << runtime.Metrics();
  runtime.Stop();
}

// Which may be for months, of jobs that come and go.
TEST(Runtime, OneThatStandsByKeepsNoKeys) {
  const SystemClock clock;
  const Logger log(STDERR_FILENO, Logger::Form::kJson, LogLevel::kError);
  local::MemoryApi api(clock, 1);
  local::MemoryClient client(api);
  const auto add = [&](const std::string& name) {
    nlohmann::json job = reconcile::JobObject(name, 2);
    job["spec"]["managedBy"] = "someone/else";
    ASSERT_TRUE(client.Create(kube::kTrainingJobs, "default", job, {}).ok());
  };
  add("listed");
  StopFlag stop;
  std::atomic<bool> leads{false};
  Runtime runtime(client, client, clock, log, stop, {.leads = [&] { return leads.load(); }});
  runtime.Start();
  const auto value = [&](const char* begin) { return Value(runtime.Metrics(), begin); };
  const auto jobs = [&] { return value("trainyard_cached_objects{resource=\"trainingjobs\"}"); };
  EXPECT_TRUE(Comes([&] { return runtime.Unready().empty(); }));
  add("stays");
  add("goes");
  EXPECT_TRUE(Comes([&] { return jobs() == 3; }));
  ASSERT_TRUE(client.Delete(kube::kTrainingJobs, "default", "goes", {}).ok());
  EXPECT_TRUE(Comes([&] { return jobs() == 2; }));
  EXPECT_EQ(value("trainyard_queue_depth"), 0);
  leads = true;
  EXPECT_TRUE(Comes([&] { return value("trainyard_reconcile_seconds_count{outcome=\"ok\"}") == 2; }))
      << runtime.Metrics();
  runtime.Stop();
}

}  // namespace
}  // namespace trainyard
