#include <gtest/gtest.h>

#include <functional>
#include <vector>

#include "operator/reconcile/conditions.h"
#include "operator/reconcile/policies.h"
#include "operator/reconcile/worker_pod.h"
#include "tests/operator/builders.h"

namespace trainyard::reconcile {
namespace {

TEST(Suspend, TheWorkersBecomeStaleAndGo) {
  Scene scene(2);
  scene.Run(2);
  scene.spec().suspend = true;
  scene.status().progress = {.step = 5, .total_steps = 9, .samples_per_second = 3.5, .eta_seconds = 7};
  const Plan first = scene.Decide();
  EXPECT_EQ(first.status.progress.step, 5);
  EXPECT_FALSE(first.status.progress.samples_per_second || first.status.progress.eta_seconds) << "nobody trains";
  EXPECT_EQ(first.status.attempt, 2);
  EXPECT_EQ(first.status.phase, api::kSuspending);
  EXPECT_EQ(first.status.restarts.total, 0) << "a suspension is no restart";
  EXPECT_TRUE(first.deletes.empty());
  scene.status() = first.status;
  const Plan second = scene.Decide();
  EXPECT_EQ(second.deletes.size(), 2u);
  EXPECT_EQ(second.status.phase, api::kSuspending);
  Scene gone(2);
  gone.spec().suspend = true;
  gone.status() = second.status;
  const Plan third = gone.Decide();
  EXPECT_EQ(third.status.phase, api::kSuspended);
  EXPECT_TRUE(IsTrue(third.status, kSuspendedCondition));
  EXPECT_FALSE(first.drops_master || second.drops_master);
  EXPECT_TRUE(third.drops_master);
  gone.status() = third.status;
  EXPECT_TRUE(
      api::MergeDiff(api::StatusToJson(third.status), api::StatusToJson(gone.Decide(After(kNow, 50)).status)).empty());
}

TEST(Suspend, OneThatIsTakenBackIsNoneAnyMore) {
  Scene scene(2);
  scene.Run(2);
  scene.spec().suspend = true;
  scene.status() = scene.Decide().status;
  EXPECT_EQ(scene.status().phase, api::kSuspending);
  scene.spec().suspend = false;
  const Plan plan = scene.Decide();
  EXPECT_EQ(plan.status.phase, api::kPending);
  EXPECT_EQ(plan.status.attempt, 2);
  EXPECT_EQ(plan.deletes.size(), 2u) << "they still make room for the attempt that has begun";
  ASSERT_EQ(plan.events.size(), 1u);
  EXPECT_EQ(plan.events[0].message, "attempt 2 begins once the workers of the one before have gone");
  scene.status() = plan.status;
  EXPECT_TRUE(scene.Decide().events.empty());
}

TEST(Suspend, PodsThatNoCacheHasShownAreWaitedFor) {
  Scene scene(2);
  scene.spec().suspend = true;
  Observed observed = scene.Observe();
  EXPECT_TRUE(IsAtRest(observed)) << "the API is asked";
  observed.coming = {1};
  EXPECT_FALSE(IsAtRest(observed));
  const Plan plan = MakePlan(observed, kNow);
  EXPECT_EQ(plan.status.phase, api::kSuspending);
  EXPECT_FALSE(IsTrue(plan.status, kSuspendedCondition));
  EXPECT_EQ(plan.status.attempt, 1) << "what comes is of this attempt";
}

TEST(Suspend, AJobThatIsBornSuspendedHasNoAttempt) {
  Scene scene(2, 0);
  scene.spec().suspend = true;
  const Plan plan = scene.Decide();
  EXPECT_EQ(plan.status.attempt, 0);
  EXPECT_EQ(plan.status.phase, api::kSuspended);
}

TEST(Suspend, AFinishedJobStaysFinished) {
  Scene scene(1);
  scene.Ended(0, 0);
  scene.spec().suspend = true;
  EXPECT_EQ(scene.Decide().status.phase, api::kSucceeded);
}

TEST(Suspend, ResumeIsANewAttempt) {
  Scene scene(2, 2);
  scene.status().workers.created = 0;
  SetCondition(scene.status(), kSuspendedCondition, true, "Requested", "", kNow, 1);
  scene.spec().workers = 2;
  const Plan plan = scene.Decide();
  EXPECT_FALSE(IsTrue(plan.status, kSuspendedCondition));
  EXPECT_EQ(plan.status.attempt, 2) << "the one that the suspension began; no pod was made for it";
  EXPECT_TRUE(plan.creates.empty());
}

// The status was never told of pods that came and went.
TEST(Suspend, AnAttemptThatHadPodsIsNotResumed) {
  Scene scene(2);
  scene.status().workers.created = 0;
  SetCondition(scene.status(), kSuspendedCondition, true, "Requested", "", kNow, 1);
  Observed observed = scene.Observe();
  EXPECT_EQ(MakePlan(observed, kNow).status.attempt, 1);
  observed.made = {0};
  EXPECT_EQ(MakePlan(observed, kNow).status.attempt, 2);
}

TEST(Suspend, TheResumedAttemptIsMadeFromTheSpecOfThen) {
  Scene scene(2, 2);
  scene.status().workers.created = 0;
  SetCondition(scene.status(), kSuspendedCondition, true, "Requested", "", kNow, 1);
  scene.spec().workers = 4;
  scene.status() = scene.Decide().status;
  EXPECT_EQ(scene.status().workers.desired, 4);
  EXPECT_EQ(scene.status().world.size, 4);
  EXPECT_EQ(scene.Decide().creates.size(), 4u);
}

// Or each failure would be charged, and each step called a replay, until the new run gets as far as the old one.
TEST(Suspend, StepsThatWereSavedElsewhereAreForgotten) {
  const auto resumed = [](const std::function<void(api::JobSpec&)>& edit) {
    Scene scene(2, 2);
    api::JobStatus& status = scene.status();
    status.checkpoint_hash = CheckpointHash(scene.job());
    status.workers.created = 0;
    status.checkpoint = {.step = 900, .time = kNow, .path = "/checkpoints/run/step-900", .bytes = 5};
    status.restarts.durable_step = 800;
    status.goodput.furthest_step = 950;
    status.progress = {.step = 950, .total_steps = 2000, .percent = 47};
    SetCondition(status, kSuspendedCondition, true, "Requested", "", kNow, 1);
    edit(scene.spec());
    return scene.Decide().status;
  };
  const std::vector<std::function<void(api::JobSpec&)>> moves = {
      [](auto& spec) {
        spec.checkpoint.volume = {{"persistentVolumeClaim", {{"claimName", "another"}}}};
      },
      [](auto& spec) { spec.checkpoint.path = "/elsewhere"; },
      [](auto& spec) { spec.config["checkpoint"]["dir"] = "/elsewhere"; },
      [](auto& spec) { spec.config["run"]["dir"] = "/elsewhere"; },
  };
  for (const auto& move : moves) {
    const api::JobStatus status = resumed(move);
    EXPECT_FALSE(status.checkpoint.step || status.restarts.durable_step || status.goodput.furthest_step);
    EXPECT_EQ(status.checkpoint.path, "");
    EXPECT_FALSE(status.progress.step || status.progress.percent);
  }
  const api::JobStatus status = resumed([](api::JobSpec& spec) {
    spec.workers = 3;
    spec.config["checkpoint"]["every_steps"] = 7;
  });
  EXPECT_EQ(status.checkpoint.step, 900);
  EXPECT_EQ(status.restarts.durable_step, 800);
  EXPECT_EQ(status.goodput.furthest_step, 950);
  EXPECT_EQ(status.progress.step, 950);
  const api::JobStatus suspended = resumed([](api::JobSpec& spec) {
    spec.checkpoint.path = "/elsewhere";
    spec.suspend = true;
  });
  EXPECT_EQ(suspended.checkpoint.step, 900) << "it is what the last attempt has left";
}

// A checkpoint at SIGTERM is newer than what rank 0 was last asked about, and who suspends a job wants to know of it.
TEST(Suspend, WhatThePodsSavedAtTheirEndIsTold) {
  for (const bool suspend : {true, false}) {
    Scene scene(2, 2);
    scene.spec().suspend = suspend;
    scene.status().workers.created = 0;
    scene.status().checkpoint.step = 450;
    scene.OldPod(0, 1).end =
        PodEnd{.exit_code = 75, .words = ReadLastWords(R"({"v":1,"step":542,"checkpoint_step":542})")};
    EXPECT_EQ(scene.Decide().status.checkpoint.step, suspend ? 542 : 450);
  }
}

}  // namespace
}  // namespace trainyard::reconcile
