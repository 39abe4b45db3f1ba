#include <gtest/gtest.h>
#include <unistd.h>

#include "operator/local/api/memory_client.h"
#include "operator/reconcile/conditions.h"
#include "operator/reconcile/reconciler.h"
#include "tests/operator/builders.h"
#include "tests/operator/reconciler_parts.h"
#include "tests/sim/dice.h"

namespace trainyard::reconcile {
namespace {

Scene Ended() {
  Scene scene(1);
  SetCondition(scene.status(), kCompleteCondition, true, "AllWorkersSucceeded", "", kNow, 1);
  scene.status().completion_time = kNow;
  return scene;
}

TEST(Ttl, DeletesAJobSoLongAfterItsEnd) {
  Scene scene = Ended();
  scene.spec().ttl_seconds_after_finished = 100;
  const Plan wait = scene.Decide(After(kNow, 99));
  EXPECT_FALSE(wait.delete_job);
  EXPECT_NEAR(wait.requeue_after_seconds.value_or(0), 1, 1e-6);
  EXPECT_TRUE(scene.Decide(After(kNow, 100)).delete_job);
}

TEST(Ttl, ZeroIsAtOnceAndNothingIsNever) {
  Scene scene = Ended();
  EXPECT_FALSE(scene.Decide(After(kNow, 1e9)).delete_job);
  scene.spec().ttl_seconds_after_finished = 0;
  EXPECT_TRUE(scene.Decide().delete_job);
}

TEST(Ttl, HoldsWhereThePodsAreKept) {
  Scene scene = Ended();
  scene.spec().clean_pod_policy = "None";
  scene.spec().ttl_seconds_after_finished = 10;
  EXPECT_TRUE(scene.Decide(After(kNow, 10)).delete_job) << "they go with the job";
}

TEST(Ttl, AJobThatRunsOrIsAnothersStays) {
  Scene runs(1);
  runs.Run(1);
  runs.spec().ttl_seconds_after_finished = 0;
  EXPECT_FALSE(runs.Decide().delete_job);
  Scene others = Ended();
  others.spec().ttl_seconds_after_finished = 0;
  others.spec().managed_by = "example.com/other";
  EXPECT_FALSE(others.Decide().delete_job);
}

// Lists alone: what changes behind them is not heard of.
struct DeafClient : local::MemoryClient {
  using MemoryClient::MemoryClient;
  Status Watch(const kube::Resource&, const std::string&, const kube::WatchOptions& options,
               const std::function<bool(kube::WatchEvent)>&, const StopFlag&) override {
    return options.initial_events ? Status(Code::kInvalid, "sendInitialEvents is forbidden") : Status::Ok();
  }
};

TEST(Ttl, AnEditThatTheOperatorHasNotSeenKeepsTheJob) {
  for (const bool edited : {false, true}) {
    sim::VirtualClock clock;
    local::MemoryApi api(clock, 1);
    DeafClient client(api);
    Json object = JobObject("job", 1);
    object["spec"]["ttlSecondsAfterFinished"] = 0;
    api.Create(kube::kTrainingJobs, "default", object, {});
    Scene ended = Ended();
    ended.status().completion_time = clock.Now();
    api.Patch(kube::kTrainingJobs, "default", "job", "status", local::PatchType::kMerge,
              {{"status", api::StatusToJson(ended.status())}}, {});
    const Logger log(STDERR_FILENO, Logger::Form::kText, LogLevel::kError);
    Caches caches(client, clock, "", 1, [](const std::string&, double) {});
    const NoReports reports;
    kube::EventRecorder events(client, clock, "test");
    Reconciler reconciler(client, clock, caches, reports, events, log, {});
    const StopFlag stop;
    for (kube::Reflector* each : caches.reflectors()) each->Pump(stop);
    if (edited)
      api.Patch(kube::kTrainingJobs, "default", "job", "", local::PatchType::kMerge,
                {{"spec", {{"ttlSecondsAfterFinished", nullptr}}}}, {});
    const kube::ReconcileResult result = reconciler.Reconcile("default/job");
    EXPECT_EQ(result.status.Is(Code::kConflict), edited) << result.status.ToString();
    EXPECT_EQ(api.Get(kube::kTrainingJobs, "default", "job").http, edited ? 200 : 404);
  }
}

}  // namespace
}  // namespace trainyard::reconcile
