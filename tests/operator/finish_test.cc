#include <gtest/gtest.h>

#include "operator/reconcile/conditions.h"
#include "tests/operator/builders.h"

namespace trainyard::reconcile {
namespace {

TEST(Finish, SucceedsWhenAllDid) {
  Scene scene(2);
  scene.Ended(0, 0);
  scene.Pod(1);
  EXPECT_NE(scene.Decide().status.phase, api::kSucceeded);
  Scene done(2);
  done.Ended(0, 0);
  done.Ended(1, 0);
  const Plan plan = done.Decide();
  EXPECT_EQ(plan.status.phase, api::kSucceeded);
  EXPECT_TRUE(plan.status.completion_time);
  EXPECT_EQ(plan.status.workers.succeeded, 2);
}

TEST(Finish, TheLastWordsAreNewerThanTheLastAnswer) {
  Scene scene(1);
  scene.Ended(0, 0, 1, R"({"v":1,"rank":0,"step":60,"checkpoint_step":60})");
  // Too short for an answer.
  api::Progress progress = scene.Decide().status.progress;
  EXPECT_EQ(progress.step, 60);
  EXPECT_EQ(progress.total_steps, 60);
  EXPECT_EQ(progress.percent, 100);
  EXPECT_EQ(scene.Decide().status.checkpoint.step, 60);
  // One that stopped early says so.
  scene.status().progress = {.step = 50, .total_steps = 240, .percent = 20, .eta_seconds = 9};
  progress = scene.Decide().status.progress;
  EXPECT_EQ(progress.step, 60);
  EXPECT_EQ(progress.percent, 25);
  EXPECT_EQ(progress.eta_seconds, 0);
}

TEST(Finish, CleanPodPolicy) {
  const std::pair<const char*, size_t> cases[] = {{"All", 3}, {"Running", 1}, {"None", 0}};
  for (const auto& [policy, deletes] : cases) {
    Scene scene(3);
    scene.spec().clean_pod_policy = policy;
    scene.Ended(0, 70);
    scene.Ended(1, 0);
    scene.Pod(2);
    SetCondition(scene.status(), kFailedCondition, true, "x", "", kNow, 1);
    const Plan plan = scene.Decide();
    EXPECT_EQ(plan.deletes.size(), deletes) << policy;
    EXPECT_TRUE(api::MergeDiff(api::StatusToJson(scene.status()), api::StatusToJson(plan.status)).empty())
        << "the evidence stays as it is";
  }
}

}  // namespace
}  // namespace trainyard::reconcile
