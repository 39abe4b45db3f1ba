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

TEST(Finish, RankZeroAloneMaySucceedForAll) {
  Scene scene(3);
  scene.spec().success_policy = "RankZero";
  scene.Pod(0);
  scene.Ended(1, 0);
  scene.Pod(2);
  EXPECT_NE(scene.Decide().status.phase, api::kSucceeded);
  Scene done(3);
  done.spec().success_policy = "RankZero";
  done.Ended(0, 0).over = true;
  done.Ended(1, 1).over = true;
  done.Pod(2);
  const Plan plan = done.Decide();
  EXPECT_EQ(plan.status.phase, api::kSucceeded) << "what the others do then does not count";
  EXPECT_EQ(FindCondition(plan.status, kCompleteCondition)->reason, "RankZeroSucceeded");
  done.status() = plan.status;
  const Plan clean = done.Decide();
  ASSERT_EQ(clean.deletes.size(), 1u) << "cleanPodPolicy ends those that still run";
  EXPECT_EQ(clean.deletes[0].name, "job-1-2");
}

TEST(Finish, ARankZeroThatFailedIsAFailure) {
  Scene scene(2);
  scene.spec().success_policy = "RankZero";
  scene.Ended(0, 70);
  scene.Ended(1, 0);
  EXPECT_EQ(scene.Decide().status.attempt, 2);
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

TEST(Finish, NothingIsLeftToAFailedJob) {
  Scene scene(1);
  scene.spec().restart.max_restarts = 0;
  scene.status().progress = {.step = 50, .total_steps = 240, .percent = 20, .eta_seconds = 9};
  scene.Ended(0, 1);
  const api::JobStatus status = scene.Decide().status;
  EXPECT_EQ(status.phase, api::kFailed);
  EXPECT_EQ(status.progress.step, 50);
  EXPECT_FALSE(status.progress.eta_seconds);
}

// A loss belongs to the step that it was reported with.
TEST(Finish, TheLossOfAnOlderStepIsNotTheLastOnes) {
  Scene scene(1);
  scene.status().progress = {.step = 50, .total_steps = 60, .percent = 83, .loss = 1.37};
  scene.Ended(0, 0, 1, R"({"v":1,"rank":0,"step":60,"checkpoint_step":60})");
  EXPECT_FALSE(scene.Decide().status.progress.loss);
  Scene same(1);
  same.status().progress = {.step = 60, .total_steps = 60, .percent = 100, .loss = 1.03};
  same.Ended(0, 0, 1, R"({"v":1,"rank":0,"step":60,"checkpoint_step":60})");
  EXPECT_EQ(same.Decide().status.progress.loss, 1.03);
}

TEST(Finish, WhatNobodyReportedStaysAbsent) {
  Scene scene(1);
  scene.Ended(0, 0, 1, "done\n");
  const Json progress = api::StatusToJson(scene.Decide().status)["progress"];
  EXPECT_EQ(progress, Json::object());
}

TEST(Finish, ASuccessIsKeptWhenItIsSeen) {
  Scene scene(3);
  scene.Ended(0, 0);
  scene.Pod(1);
  scene.Ended(2, 0);
  const Plan plan = scene.Decide();
  EXPECT_EQ(plan.status.workers.done, "0,2");
  EXPECT_EQ(plan.status.workers.succeeded, 2);
  // Someone cleans up what has ended.
  Scene later(3);
  later.status() = plan.status;
  later.Pod(1);
  EXPECT_TRUE(later.Observe().missing.empty());
  const Plan still = later.Decide();
  EXPECT_EQ(still.status.attempt, 1);
  EXPECT_TRUE(still.creates.empty());
  EXPECT_EQ(still.status.workers.succeeded, 2);
  Scene last(3);
  last.status() = still.status;
  last.Ended(1, 0);
  EXPECT_EQ(last.Decide().status.phase, api::kSucceeded);
}

TEST(Finish, APodThatWasDeletedAndEndsWithZeroIsNoSuccess) {
  Scene scene(1);
  PodRecord& pod = scene.Ended(0, 0, 5);
  pod.deleting = true;
  pod.deleted_at = After(kNow, -10);
  const Plan plan = scene.Decide();
  EXPECT_EQ(plan.status.attempt, 2);
  EXPECT_EQ(plan.status.restarts.charged, 0);
  EXPECT_EQ(plan.status.last_failure->reason, "PodDeleted");
  pod.deleted_at = pod.end->time;
  EXPECT_EQ(scene.Decide().status.attempt, 2) << "within one second it may have been told to";
  pod.deleted_at = After(kNow, -1);
  EXPECT_EQ(scene.Decide().status.phase, api::kSucceeded) << "it had ended before";
  pod.deleted_at.reset();
  EXPECT_EQ(scene.Decide().status.attempt, 2) << "its kubelet takes it away: nobody knows when it was told to go";
}

TEST(Finish, TheAddressIsGivenBackOnceNothingRuns) {
  Scene scene(2);
  scene.Ended(0, 0).over = true;
  PodRecord& last = scene.Ended(1, 0);
  EXPECT_FALSE(scene.Decide().drops_master) << "the end is written first";
  scene.status() = scene.Decide().status;
  EXPECT_FALSE(scene.Decide().drops_master) << "a sidecar runs";
  last.over = true;
  EXPECT_TRUE(scene.Decide().drops_master);
  scene.spec().clean_pod_policy = "None";
  EXPECT_TRUE(scene.Decide().drops_master);
  scene.spec().ttl_seconds_after_finished = 0;
  EXPECT_FALSE(scene.Decide().drops_master) << "it goes with the job";
  scene.spec().ttl_seconds_after_finished.reset();
  scene.spec().rendezvous = api::kByName;
  EXPECT_FALSE(scene.Decide().drops_master) << "it never had one";
}

TEST(Finish, CleanPodPolicy) {
  const std::pair<const char*, size_t> cases[] = {{"All", 4}, {"Running", 2}, {"None", 0}};
  for (const auto& [policy, deletes] : cases) {
    Scene scene(4);
    scene.spec().clean_pod_policy = policy;
    scene.Ended(0, 70).over = true;
    scene.Ended(1, 0).over = true;
    scene.Pod(2);
    scene.Ended(3, 0);  // a sidecar runs on, and keeps the node's GPUs
    SetCondition(scene.status(), kFailedCondition, true, "x", "", kNow, 1);
    const Plan plan = scene.Decide();
    EXPECT_EQ(plan.deletes.size(), deletes) << policy;
    EXPECT_TRUE(api::MergeDiff(api::StatusToJson(scene.Observe().job.status), api::StatusToJson(plan.status)).empty())
        << "the evidence stays as it is";
  }
}

}  // namespace
}  // namespace trainyard::reconcile
