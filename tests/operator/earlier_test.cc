#include <gtest/gtest.h>

#include <functional>

#include "operator/reconcile/conditions.h"
#include "tests/operator/builders.h"

namespace trainyard::reconcile {
namespace {

using Change = std::function<void(PodRecord&)>;

// What is planned for the first attempt of the job that has the name now, beside what `change` made of a pod of the
// third attempt of one that had it before.
Plan Beside(const Change& change, Time now = kNow) {
  Scene scene(1);
  scene.status().workers.created = 0;
  PodRecord& pod = scene.OldPod(0, 3);
  pod.owner_uid = pod.job_uid = "uid-of-before";
  pod.of_job = true;
  change(pod);
  return scene.Decide(now);
}

void Goes(PodRecord& pod) {
  pod.deleting = true;
  pod.deleted_at = kNow;
  pod.gone_by = After(kNow, 70);
}

void IsLeft(PodRecord& pod) {
  pod.owner_uid = "";
  pod.of_job = false;
  pod.orphan = true;
}

TEST(Earlier, ADeletedJobsPodsEndFirst) {
  for (const Change& change : {Change([](PodRecord&) {}), Change(Goes)}) {
    const Plan plan = Beside(change);
    EXPECT_TRUE(plan.creates.empty());
    EXPECT_TRUE(plan.deletes.empty()) << "whoever collects garbage deletes it";
    const api::Condition* ready = FindCondition(plan.status, kWorkersReadyCondition);
    ASSERT_TRUE(ready);
    EXPECT_EQ(ready->reason, "EarlierJob");
    EXPECT_EQ(ready->message,
              "pod job-3-0 of an earlier job of this name has not ended yet; attempt 1 begins after that");
    ASSERT_EQ(plan.events.size(), 1u);
    EXPECT_EQ(plan.events[0].type, "Normal");
  }
}

TEST(Earlier, OnesThatNobodyEndsAreAPersonsToEnd) {
  const Plan plan = Beside(IsLeft);
  EXPECT_TRUE(plan.creates.empty());
  EXPECT_EQ(FindCondition(plan.status, kWorkersReadyCondition)->message,
            "pod job-3-0 of an earlier job of this name is left, with no job that would end it: delete it; attempt 1 "
            "begins after that");
  ASSERT_EQ(plan.events.size(), 1u);
  EXPECT_EQ(plan.events[0].type, "Warning");
}

TEST(Earlier, WhatHasEndedIsInNobodysWay) {
  EXPECT_EQ(Beside([](PodRecord& pod) { pod.over = true; }).creates.size(), 1u);
  EXPECT_EQ(Beside([](PodRecord& pod) { pod.deleting = pod.forced = true; }).creates.size(), 1u);
}

// kubectl debug --copy-to --keep-labels.
TEST(Earlier, ACopyOfOnesOwnIsNoEarlierJobs) {
  const auto copy = [](PodRecord& pod) {
    IsLeft(pod);
    pod.job_uid = "uid-job";
  };
  EXPECT_EQ(Beside(copy).creates.size(), 1u);
}

TEST(Earlier, WhatTurnsOutToBeLeftIsWarnedOfOnceAndCountedAlone) {
  Scene scene(1);
  scene.status().workers.created = 0;
  for (int64_t rank = 0; rank < 3; ++rank) {
    PodRecord& pod = scene.OldPod(rank, 3);
    pod.owner_uid = pod.job_uid = "uid-of-before";
    pod.of_job = true;
  }
  scene.status() = scene.Decide().status;
  EXPECT_TRUE(scene.Decide().events.empty());
  IsLeft(scene.OldPod(3, 3));
  EXPECT_TRUE(scene.Decide().events.empty()) << "that one tells of no job";
  PodRecord& left = scene.OldPod(4, 3);
  left.job_uid = "uid-of-before";
  IsLeft(left);
  const Plan plan = scene.Decide();
  ASSERT_EQ(plan.events.size(), 1u);
  EXPECT_EQ(plan.events[0].type, "Warning");
  EXPECT_TRUE(plan.events[0].message.starts_with("pod job-3-4 of an earlier job")) << plan.events[0].message;
  scene.status() = plan.status;
  EXPECT_TRUE(scene.Decide().events.empty());
}

// Each try would tell of it anew, and the job has so many events.
TEST(Earlier, IsNotSaidAgainBehindAProblem) {
  Scene scene(1);
  scene.status().workers.created = 0;
  PodRecord& pod = scene.OldPod(0, 3);
  pod.owner_uid = pod.job_uid = "uid-of-before";
  pod.of_job = true;
  SetCondition(scene.status(), kWorkersReadyCondition, false, "Forbidden", "delete pod", kNow, 1);
  EXPECT_TRUE(scene.Decide().events.empty());
}

TEST(Earlier, AnotherKindOfOwnersPodsAreTheirs) {
  EXPECT_EQ(Beside([](PodRecord& pod) { pod.of_job = false; }).creates.size(), 1u);
}

TEST(Earlier, ALostNodesPodIsDeletedByForce) {
  EXPECT_TRUE(Beside(Goes, After(kNow, 71)).deletes.empty());
  const Plan plan = Beside(Goes, After(kNow, 1000));
  ASSERT_EQ(plan.deletes.size(), 1u);
  EXPECT_TRUE(plan.deletes[0].force);
  EXPECT_TRUE(IsTrue(plan.status, kUnfencedCondition)) << "of its image nothing is known";
}

TEST(Earlier, AnAttemptThatHasPodsGoesOn) {
  Scene scene(2);
  scene.status().workers.created = 1;
  scene.Pod(0);
  PodRecord& pod = scene.OldPod(0, 3);
  pod.owner_uid = pod.job_uid = "uid-of-before";
  pod.of_job = true;
  EXPECT_EQ(scene.Decide().creates, std::vector<int64_t>{1});
}

}  // namespace
}  // namespace trainyard::reconcile
