#include <gtest/gtest.h>

#include "operator/reconcile/conditions.h"
#include "operator/reconcile/policies.h"
#include "tests/operator/builders.h"

namespace trainyard::reconcile {
namespace {

TEST(Start, CreatesWhatIsMissing) {
  Scene scene(3);
  scene.status().workers.created = 0;
  EXPECT_EQ(scene.Decide().creates, (std::vector<int64_t>{0, 1, 2}));
  scene.Pod(1);
  EXPECT_EQ(scene.Decide().creates, (std::vector<int64_t>{0, 2}));
}

TEST(Start, WhatWasJustCreatedIsNotCreatedAgain) {
  Scene scene(3);
  scene.status().workers.created = 0;
  Observed observed = scene.Observe();
  observed.coming = {1};
  EXPECT_EQ(MakePlan(observed, kNow).creates, (std::vector<int64_t>{0, 2}));
}

// What was made from the old spec, by this process or another, is in no status yet.
TEST(Start, AnotherSpecIsAnotherAttempt) {
  Scene scene(3);
  scene.status().workers.created = 0;
  scene.status().spec_hash = "of another spec";
  const Plan plan = scene.Decide();
  EXPECT_EQ(plan.status.attempt, 2);
  EXPECT_EQ(plan.status.spec_hash, SpecHash(scene.job()));
  EXPECT_TRUE(plan.creates.empty());
}

// Kueue counts the pods of a group that carry its queue: half of them would wait for ever.
TEST(Start, AnotherQueueIsAnotherAttempt) {
  Scene scene(3);
  scene.status().workers.created = 1;
  scene.status().spec_hash = SpecHash(scene.job());
  scene.Pod(0);
  EXPECT_EQ(scene.Decide().status.attempt, 1);
  scene.job().labels = {{"kueue.x-k8s.io/queue-name", "team"}};
  EXPECT_EQ(scene.Decide().status.attempt, 2);
  scene.Pod(1);
  scene.Pod(2);
  EXPECT_EQ(scene.Decide().status.attempt, 1) << "nothing is made any more";
}

// The server's word that a pod was made is better than a cache that has not heard of it.
TEST(Start, AllAreThereOnceAllWereMade) {
  Scene scene(3);
  scene.status().workers.created = 0;
  scene.Pod(1);
  const Observed observed = scene.Observe();
  Plan plan = MakePlan(observed, kNow);
  CountCreated(observed, {0}, plan);
  EXPECT_EQ(plan.status.workers.created, 2);
  EXPECT_TRUE(plan.events.empty());
  CountCreated(observed, {0, 1, 2}, plan);
  EXPECT_EQ(plan.status.workers.created, 3);
  EXPECT_EQ(plan.status.phase, api::kStarting);
}

TEST(Start, SaysWhatItWaitsFor) {
  Scene scene(2);
  scene.Pod(0).ready = true;
  PodRecord& pod = scene.Pod(1);
  pod.ready = pod.scheduled = false;
  pod.waiting_reason = "Unschedulable";
  pod.waiting_message = "0/3 nodes are available";
  const Plan plan = scene.Decide();
  EXPECT_EQ(plan.status.phase, api::kStarting);
  const api::Condition* ready = FindCondition(plan.status, kWorkersReadyCondition);
  ASSERT_TRUE(ready);
  EXPECT_EQ(ready->reason, "Unschedulable");
  EXPECT_EQ(ready->message, "1 of 2 workers are ready; job-1-1: Unschedulable: 0/3 nodes are available");
}

TEST(Start, ScheduledSaysWhatKeepsThePodThatHasNoNode) {
  Scene scene(2);
  PodRecord& pulls = scene.Pod(0);
  pulls.ready = false;
  pulls.waiting_reason = "ImagePullBackOff";
  PodRecord& waits = scene.Pod(1);
  waits.ready = waits.scheduled = false;
  waits.waiting_reason = "Unschedulable";
  waits.waiting_message = "0/3 nodes are available";
  const Plan plan = scene.Decide();
  EXPECT_EQ(FindCondition(plan.status, kScheduledCondition)->message,
            "1 of 2 workers are scheduled; job-1-1: Unschedulable: 0/3 nodes are available");
  EXPECT_EQ(FindCondition(plan.status, kWorkersReadyCondition)->reason, "ImagePullBackOff");
}

TEST(Start, TheWaitIsHeld) {
  Scene scene(1, 2);
  scene.status().workers.created = 0;
  scene.status().restarts = {.total = 1, .charged = 1, .repeats = 1};
  SetCondition(scene.status(), kRestartingCondition, true, "InternalError", "", After(kNow, -2), 1);
  const Plan early = scene.Decide();
  EXPECT_TRUE(early.creates.empty());
  EXPECT_NEAR(early.requeue_after_seconds.value_or(0), 3, 1e-9);
  EXPECT_EQ(scene.Decide(After(kNow, 3)).creates, std::vector<int64_t>{0});
}

TEST(Start, AWaitThatBeginsInTheFutureIsOver) {
  Scene scene(1, 2);
  scene.status().workers.created = 0;
  scene.status().restarts = {.total = 1, .charged = 1, .repeats = 1};
  SetCondition(scene.status(), kRestartingCondition, true, "InternalError", "", After(kNow, 7200), 1);
  EXPECT_EQ(scene.Decide().creates, std::vector<int64_t>{0}) << "nobody meant to wait for two hours";
}

// The generation that the status shows would say that the edit is in force.
TEST(Start, AnEditThatThePodsHaveNotSeenIsSaidOnce) {
  Scene scene(1);
  scene.Pod(0);
  scene.status().spec_hash = "of another spec";
  scene.job().generation = 2;
  const Plan plan = scene.Decide();
  EXPECT_EQ(plan.status.attempt, 1);
  ASSERT_FALSE(plan.events.empty());
  EXPECT_EQ(plan.events.front().reason, "OldSpec");
  scene.status().observed_generation = 2;
  for (const JobEvent& event : scene.Decide().events) EXPECT_NE(event.reason, "OldSpec");
}

}  // namespace
}  // namespace trainyard::reconcile
