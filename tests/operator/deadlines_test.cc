#include <gtest/gtest.h>

#include "operator/reconcile/conditions.h"
#include "operator/reconcile/policies.h"
#include "tests/operator/builders.h"

namespace trainyard::reconcile {
namespace {

// Two workers whose pods were created so many seconds ago; the second has no node yet.
Scene Waiting(double seconds = 10) {
  Scene scene(2);
  for (const int64_t rank : {0, 1}) {
    PodRecord& pod = scene.Pod(rank);
    pod.created = After(kNow, -seconds - static_cast<double>(rank));
    pod.scheduled = rank == 0;
    pod.ready = false;
    pod.node = rank == 0 ? "n0" : "";
  }
  return scene;
}

TEST(ScheduleDeadline, IsNoneUnlessItIsAsked) { EXPECT_EQ(Waiting().Decide(After(kNow, 1e6)).status.attempt, 1); }

TEST(ScheduleDeadline, CountsFromTheFirstPodAndEndsTheAttempt) {
  Scene scene = Waiting();
  scene.spec().deadlines.schedule_seconds = 30;
  const Plan wait = scene.Decide();
  EXPECT_EQ(wait.status.attempt, 1);
  EXPECT_NEAR(wait.requeue_after_seconds.value_or(0), 19, 1e-6) << "when it is due";
  const Plan plan = scene.Decide(After(kNow, 19));
  EXPECT_EQ(plan.status.attempt, 2);
  EXPECT_EQ(plan.status.restarts.charged, 1);
  ASSERT_TRUE(plan.status.last_failure);
  EXPECT_EQ(plan.status.last_failure->reason, "ScheduleDeadlineExceeded");
  EXPECT_EQ(plan.status.last_failure->pod, "job-1-1");
  EXPECT_FALSE(plan.status.last_failure->exit_code);
  EXPECT_EQ(plan.status.last_failure->message,
            "1 of 2 workers are not scheduled 30 s after the attempt's first pod was created "
            "(spec.deadlines.scheduleSeconds)");
}

// The API server's clock is five minutes behind: its stamp is of before the attempt.
TEST(ScheduleDeadline, NoPodIsOlderThanItsAttempt) {
  Scene scene = Waiting(300);
  scene.spec().deadlines.schedule_seconds = 30;
  scene.status().attempt_time = After(kNow, -5);
  EXPECT_EQ(scene.Decide(After(kNow, 24)).status.attempt, 1);
  EXPECT_EQ(scene.Decide(After(kNow, 25)).status.attempt, 2);
}

TEST(ScheduleDeadline, SaysWhatTheWorkerWaitsFor) {
  Scene scene(1);
  PodRecord& pod = scene.Pod(0);
  pod.created = After(kNow, -60);
  pod.scheduled = pod.ready = false;
  pod.waiting_reason = "Unschedulable";
  pod.waiting_message = "0/3 nodes are available";
  scene.spec().deadlines.schedule_seconds = 30;
  EXPECT_TRUE(
      scene.Decide().status.last_failure->message.ends_with("; this one: Unschedulable: 0/3 nodes are available"));
}

// Both have a node since `seconds`; the second is not ready.
Scene Starting(double seconds) {
  Scene scene(2);
  scene.Pod(0);
  PodRecord& pod = scene.Pod(1);
  pod.ready = false;
  pod.node = "n1";
  pod.waiting_reason = "ImagePullBackOff";
  SetCondition(scene.status(), kScheduledCondition, true, "AllWorkersScheduled", "", After(kNow, -seconds), 1);
  return scene;
}

TEST(StartDeadline, CountsFromWhenAllAreScheduled) {
  const Plan wait = Starting(1700).Decide();
  EXPECT_EQ(wait.status.attempt, 1);
  EXPECT_LE(wait.requeue_after_seconds.value_or(1e9), 100);
  const Plan plan = Starting(1800).Decide();
  EXPECT_EQ(plan.status.attempt, 2);
  EXPECT_EQ(plan.status.last_failure->reason, "StartDeadlineExceeded");
  EXPECT_EQ(plan.status.last_failure->node, "n1");
  EXPECT_EQ(plan.status.last_failure->message,
            "1 of 2 workers are not ready 1800 s after all were scheduled (spec.deadlines.startSeconds); this one: "
            "ImagePullBackOff");
}

TEST(StartDeadline, DoesNotCountWhileOneHasNoNode) {
  Scene scene = Waiting();
  SetCondition(scene.status(), kScheduledCondition, true, "stale", "", After(kNow, -5000), 1);
  EXPECT_EQ(scene.Decide().status.attempt, 1);
}

TEST(StartDeadline, IsOverOnceAllHaveRun) {
  Scene scene = Starting(1e6);
  SetCondition(scene.status(), kRunningCondition, true, "AllWorkersReady", "", kNow, 1);
  EXPECT_EQ(scene.Decide().status.attempt, 1) << "a worker that is unready later has started once";
}

TEST(StartDeadline, HoldsForASpecThatIsWrong) {
  Scene scene = Starting(1800);
  scene.record().errors = {{api::FieldError::Kind::kInvalid, "spec.x", "0", "1"}};
  EXPECT_EQ(scene.Decide().status.attempt, 2);
}

TEST(StartDeadline, ARuleMayNameIt) {
  Scene scene = Starting(1800);
  scene.spec().restart.rules = {
      {.on_pod_condition = "", .on_exit_codes = {}, .on_reasons = {"StartDeadlineExceeded"}, .action = api::kFail}};
  EXPECT_EQ(scene.Decide().status.phase, api::kFailed);
  scene.spec().restart.rules = {{.on_pod_condition = "", .on_exit_codes = {1}, .on_reasons = {}, .action = api::kFail}};
  EXPECT_EQ(scene.Decide().status.attempt, 2) << "it has no exit code that a rule could match";
}

TEST(ActiveDeadline, FailsTheJobWhateverItIsDoing) {
  for (const bool draining : {false, true}) {
    Scene scene(1, 2);
    scene.Pod(0);
    if (draining) scene.OldPod(0, 1);
    scene.spec().deadlines.active_seconds = 100;
    scene.status().start_time = After(kNow, -99);
    const Plan wait = scene.Decide();
    EXPECT_EQ(wait.status.completion_time, std::nullopt);
    EXPECT_LE(wait.requeue_after_seconds.value_or(1e9), 1);
    const Plan plan = scene.Decide(After(kNow, 1));
    EXPECT_EQ(plan.status.phase, api::kFailed);
    const api::Condition* failed = FindCondition(plan.status, kFailedCondition);
    ASSERT_TRUE(failed);
    EXPECT_EQ(failed->reason, "DeadlineExceeded");
    EXPECT_EQ(failed->message,
              "the job has taken 100 s without its suspensions, and spec.deadlines.activeSeconds is 100");
  }
}

TEST(ActiveDeadline, ASuspensionDoesNotCount) {
  Scene scene(1, 2);
  scene.status().workers.created = 0;
  scene.status().start_time = After(kNow, -500);
  scene.spec().deadlines.active_seconds = 100;
  SetCondition(scene.status(), kSuspendedCondition, true, "Requested", "", After(kNow, -450), 1);
  const Plan resumed = scene.Decide();
  EXPECT_EQ(resumed.status.suspended_seconds, 450);
  EXPECT_FALSE(resumed.status.completion_time);
  scene.status() = resumed.status;
  EXPECT_FALSE(scene.Decide(After(kNow, 49)).status.completion_time);
  EXPECT_EQ(scene.Decide(After(kNow, 50)).status.phase, api::kFailed);
}

TEST(ActiveDeadline, ASuccessCountsFirst) {
  Scene scene(1);
  scene.Ended(0, 0);
  scene.spec().deadlines.active_seconds = 1;
  scene.status().start_time = After(kNow, -99);
  EXPECT_EQ(scene.Decide().status.phase, api::kSucceeded);
}

}  // namespace
}  // namespace trainyard::reconcile
