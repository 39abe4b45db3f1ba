#include <gtest/gtest.h>

#include "operator/kube/client.h"
#include "operator/reconcile/conditions.h"
#include "operator/reconcile/policies.h"
#include "tests/operator/builders.h"

namespace trainyard::reconcile {
namespace {

// A pod of an attempt before, whose grace ends now.
PodRecord& Going(Scene& scene, int64_t rank) {
  PodRecord& pod = scene.OldPod(rank, 1);
  pod.deleting = true;
  pod.deleted_at = After(kNow, -70);
  pod.gone_by = kNow;
  pod.node = "n" + std::to_string(rank);
  return pod;
}

TEST(Terminate, APodThatIsOverdueIsDeletedByForce) {
  Scene scene(2, 2);
  Going(scene, 0);
  Going(scene, 1);
  const Plan wait = scene.Decide(After(kNow, 59));
  EXPECT_TRUE(wait.deletes.empty());
  EXPECT_LE(wait.requeue_after_seconds.value_or(1e9), 1);
  const Plan plan = scene.Decide(After(kNow, 60));
  ASSERT_EQ(plan.deletes.size(), 2u);
  EXPECT_TRUE(plan.deletes[0].force);
  EXPECT_EQ(plan.deletes[0].uid, "pod-uid-job-1-0");
  ASSERT_EQ(plan.events.size(), 1u) << "one for all of them";
  EXPECT_EQ(
      plan.events[0].message,
      "pod job-1-0 and 1 more on node n0 should have been gone by 2026-03-01T12:00:00Z, did not go within 60 s "
      "more (spec.deadlines.terminateSeconds), and is deleted by force; its processes may still run, and no fence in "
      "a checkpoint directory that nodes share keeps them from writing");
}

TEST(Terminate, AFinalizerIsNotForced) {
  Scene scene(1, 2);
  Going(scene, 0).forced = true;
  EXPECT_TRUE(scene.Decide(After(kNow, 1000)).deletes.empty()) << "no grace can be shortened any more";
}

// Kueue takes its finalizer from the pods of a group when all of them have ended, and another program may never do.
TEST(Terminate, AnEndedPodThatAFinalizerHoldsIsInNobodysWay) {
  Scene scene(1, 2);
  scene.status().workers.created = 0;
  PodRecord& pod = Going(scene, 0);
  EXPECT_TRUE(scene.Decide().creates.empty());
  pod.end = PodEnd{.exit_code = 75, .signal = 0, .reason = "Error", .words = {}, .time = kNow};
  EXPECT_TRUE(scene.Decide().creates.empty()) << "a sidecar may still run";
  pod.over = true;
  EXPECT_EQ(scene.Decide().creates, std::vector<int64_t>{0});
  EXPECT_TRUE(scene.Decide(After(kNow, 1000)).deletes.empty());
  EXPECT_FALSE(IsTrue(scene.Decide(After(kNow, 1000)).status, kUnfencedCondition)) << "nothing of it runs";
  Scene gated(1, 2);
  gated.status().workers.created = 0;
  PodRecord& never = Going(gated, 0);
  never.forced = true;  // the API server gives no grace to a pod without a node
  EXPECT_EQ(gated.Decide().creates, std::vector<int64_t>{0});
}

TEST(Terminate, WhatNothingFencesIsSaidInTheStatus) {
  const Json claim = {{"persistentVolumeClaim", {{"claimName", "c"}}}}, empty = {{"emptyDir", Json::object()}},
             ephemeral = {{"ephemeral", Json::object()}}, host = {{"hostPath", {{"path", "/data"}}}};
  for (const auto& [volume, answered, fenced] :
       {std::tuple(Json(), true, false),
        {empty, true, false},
        {ephemeral, true, false},
        {host, true, true},
        {claim, true, true},
        {claim, false, false}}) {  // an image that never answered has another program's habits
    Scene scene(1, 2);
    scene.spec().checkpoint.volume = volume;
    if (answered) scene.status().progress.last_update = kNow;
    Going(scene, 0);
    const Plan plan = scene.Decide(After(kNow, 60));
    EXPECT_EQ(IsTrue(plan.status, kUnfencedCondition), !fenced) << volume;
  }
}

// An operator whose clock is ahead of the API server's by more than the grace would end every save with force.
TEST(Terminate, NothingIsForcedThatWasNotWatchedAsLong) {
  Scene scene(1, 2);
  Going(scene, 0);
  Observed observed = scene.Observe();
  observed.unproven["pod-uid-job-1-0"] = 130;
  const Plan wait = MakePlan(observed, After(kNow, 1000));
  EXPECT_TRUE(wait.deletes.empty());
  EXPECT_LE(wait.requeue_after_seconds.value_or(1e9), 130);
  EXPECT_EQ(DeletionSeconds(observed, *observed.stale[0]), 130) << "its grace and terminateSeconds";
  observed.unproven.clear();
  EXPECT_EQ(MakePlan(observed, After(kNow, 1000)).deletes.size(), 1u);
}

TEST(Terminate, HoldsForAJobThatHasEndedAndOneThatIsSuspended) {
  Scene ended(1, 2);
  Going(ended, 0);
  SetCondition(ended.status(), kCompleteCondition, true, "AllWorkersSucceeded", "", kNow, 1);
  ASSERT_EQ(ended.Decide(After(kNow, 60)).deletes.size(), 1u);
  ended.spec().clean_pod_policy = "None";
  EXPECT_TRUE(ended.Decide(After(kNow, 60)).deletes.empty()) << "someone else deletes it";
  Scene suspended(1, 2);
  Going(suspended, 0);
  suspended.spec().suspend = true;
  EXPECT_EQ(suspended.Decide(After(kNow, 60)).deletes.size(), 1u);
}

// A node that is lost: its pods are evicted, and stay.
TEST(Terminate, AWorkerThatDoesNotGoIsLostToItsAttempt) {
  for (const bool disrupted : {false, true}) {
    Scene scene(2);
    scene.Pod(0);
    PodRecord& pod = scene.Pod(1);
    pod.deleting = true;
    pod.deleted_at = After(kNow, -70);
    pod.gone_by = kNow;
    pod.disrupted = disrupted;
    pod.node = "n1";
    const Plan wait = scene.Decide(After(kNow, 59));
    EXPECT_EQ(wait.status.attempt, 1);
    EXPECT_LE(wait.requeue_after_seconds.value_or(1e9), 1);
    const Plan plan = scene.Decide(After(kNow, 60));
    EXPECT_EQ(plan.status.attempt, 2);
    EXPECT_EQ(plan.status.restarts.charged, 0) << "no fault of the job's";
    EXPECT_TRUE(plan.deletes.empty()) << "the operator deletes no pod of the attempt that it is in";
    EXPECT_EQ(plan.status.last_failure->reason, disrupted ? "DisruptionTarget" : "PodDeleted");
    EXPECT_EQ(plan.status.last_failure->node, "n1");
    EXPECT_FALSE(plan.status.last_failure->exit_code);
  }
}

TEST(Terminate, APodOfTheApiSaysWhenItIsGone) {
  Json pod = {{"metadata",
               {{"name", "p"},
                {"creationTimestamp", "2026-03-01T11:00:00Z"},
                {"deletionTimestamp", "2026-03-01T12:01:10Z"},
                {"deletionGracePeriodSeconds", 70}}}};
  const PodRecord record = PodFromJson(pod);
  EXPECT_EQ(record.created, After(kNow, -3600));
  EXPECT_EQ(record.gone_by, After(kNow, 70));
  EXPECT_EQ(record.deleted_at, kNow);
  EXPECT_FALSE(record.forced);
  pod["metadata"]["deletionGracePeriodSeconds"] = 0;
  EXPECT_TRUE(PodFromJson(pod).forced);
}

}  // namespace
}  // namespace trainyard::reconcile
