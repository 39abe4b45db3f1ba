#include <gtest/gtest.h>

#include "tests/operator/builders.h"

namespace trainyard::reconcile {
namespace {

TEST(MakePlan, ANewJobGetsAnAttemptBeforeAnyPod) {
  Scene scene(2, 0);
  const Plan plan = scene.Decide();
  EXPECT_EQ(plan.status.attempt, 1);
  EXPECT_TRUE(plan.creates.empty());
  EXPECT_EQ(plan.status.master.address, "") << "its service is yet to be made";
  EXPECT_EQ(plan.status.world.size, 2);
  EXPECT_EQ(plan.status.spec_hash, SpecHash(scene.job()));
}

TEST(MakePlan, ASteadyStateChangesNothing) {
  Scene scene(2);
  scene.Run(2);
  Plan plan = scene.Decide();
  EXPECT_EQ(plan.status.phase, api::kRunning);
  scene.status() = plan.status;
  plan = scene.Decide(After(kNow, 100));
  EXPECT_TRUE(api::MergeDiff(api::StatusToJson(scene.status()), api::StatusToJson(plan.status)).empty());
  EXPECT_TRUE(plan.creates.empty() && plan.deletes.empty() && plan.events.empty());
}

// A pod that was deleted by force meanwhile wakes nobody, and the patch that finds it gone is a success.
TEST(MakePlan, APodThatGetsItsLabelsBackIsLookedForAgain) {
  Scene scene(1);
  Observed observed = scene.Observe();
  observed.unlabelled = {{"job-1-0", "pod-uid", 0}};
  const Plan plan = MakePlan(observed, kNow);
  EXPECT_EQ(plan.relabels.size(), 1u);
  EXPECT_LE(plan.requeue_after_seconds.value_or(1e9), 10);
}

TEST(MakePlan, NeverMixesTwoAttempts) {
  Scene scene(2, 2);
  scene.status().workers.created = 0;
  scene.OldPod(0, 1);
  scene.OldPod(1, 1).deleting = true;
  const Plan plan = scene.Decide();
  EXPECT_TRUE(plan.creates.empty());
  ASSERT_EQ(plan.deletes.size(), 1u) << "the other one is going already";
  EXPECT_EQ(plan.deletes[0].name, "job-1-0");
}

TEST(MakePlan, ForeignPodsAreLeftAlone) {
  Scene scene(1);
  scene.Pod(0).owner_uid = "someone-else";
  scene.status().workers.created = 0;
  const Plan plan = scene.Decide();
  EXPECT_TRUE(plan.deletes.empty());
  EXPECT_EQ(plan.creates, std::vector<int64_t>{0});
}

TEST(MakePlan, AnotherControllersJobIsLeftAlone) {
  Scene scene(1, 0);
  scene.spec().managed_by = "someone/else";
  const Observed observed = scene.Observe();
  EXPECT_TRUE(api::MergeDiff(api::StatusToJson(observed.job.status), api::StatusToJson(MakePlan(observed, kNow).status))
                  .empty());
}

}  // namespace
}  // namespace trainyard::reconcile
