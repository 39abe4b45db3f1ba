#include <gtest/gtest.h>

#include "operator/reconcile/conditions.h"
#include "operator/reconcile/policies.h"
#include "tests/operator/builders.h"

namespace trainyard::reconcile {
namespace {

TEST(MakePlan, ANewJobGetsAnAttemptBeforeAnyPod) {
  Scene scene(2, 0);
  const Plan plan = scene.Decide();
  EXPECT_EQ(plan.status.attempt, 1);
  EXPECT_TRUE(plan.creates.empty());
  EXPECT_EQ(plan.status.master.address, "job-1-0.job.default.svc");
  EXPECT_EQ(plan.status.world.size, 2);
  EXPECT_EQ(plan.status.spec_hash, SpecHash(scene.spec()));
}

TEST(MakePlan, CreatesWhatIsMissing) {
  Scene scene(3);
  scene.status().workers.created = 0;
  EXPECT_EQ(scene.Decide().creates, (std::vector<int64_t>{0, 1, 2}));
  scene.Pod(1);
  EXPECT_EQ(scene.Decide().creates, (std::vector<int64_t>{0, 2}));
}

TEST(MakePlan, ASteadyStateChangesNothing) {
  Scene scene(2);
  scene.Run(2);
  Plan plan = scene.Decide();
  EXPECT_EQ(plan.status.phase, api::kRunning);
  scene.status() = plan.status;
  plan = scene.Decide(After(kNow, 100));
  EXPECT_TRUE(api::MergeDiff(api::StatusToJson(scene.status()), api::StatusToJson(plan.status)).empty());
  EXPECT_TRUE(plan.creates.empty() && plan.deletes.empty() && plan.master_patches.empty() && plan.events.empty());
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

TEST(MakePlan, PublishesRankZerosAddress) {
  Scene scene(2);
  scene.Pod(0).master = "";
  scene.Pod(1).master = "10.9.9.9";
  const Plan plan = scene.Decide();
  ASSERT_EQ(plan.master_patches.size(), 2u);
  EXPECT_EQ(plan.master_patches[1].address, "10.0.0.1");
}

TEST(MakePlan, SaysWhatItWaitsFor) {
  Scene scene(2);
  scene.Pod(0).ready = true;
  PodRecord& pod = scene.Pod(1);
  pod.ready = pod.scheduled = false;
  pod.waiting_reason = "Unschedulable";
  pod.waiting_message = "0/3 nodes are available";
  const Plan plan = scene.Decide();
  EXPECT_EQ(plan.status.phase, api::kStarting);
  const api::Condition* ready = FindCondition(plan.status, kReadyCondition);
  ASSERT_TRUE(ready);
  EXPECT_EQ(ready->reason, "Unschedulable");
  EXPECT_EQ(ready->message, "1 of 2 workers are ready; job-1-1: Unschedulable: 0/3 nodes are available");
}

TEST(MakePlan, SucceedsWhenAllDid) {
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

TEST(Suspend, TheWorkersBecomeStaleAndGo) {
  Scene scene(2);
  scene.Run(2);
  scene.spec().suspend = true;
  const Plan first = scene.Decide();
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
  gone.status() = third.status;
  EXPECT_TRUE(
      api::MergeDiff(api::StatusToJson(third.status), api::StatusToJson(gone.Decide(After(kNow, 50)).status)).empty());
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
  EXPECT_EQ(plan.status.attempt, 3);
  EXPECT_TRUE(plan.creates.empty());
}

TEST(InvalidSpec, CreatesNothingAndClears) {
  Scene scene(2, 0);
  scene.record().errors = {{api::FieldError::Kind::kInvalid, "spec.x", "1", "2"}};
  const Plan plan = scene.Decide();
  EXPECT_EQ(plan.status.phase, api::kInvalid);
  EXPECT_EQ(FindCondition(plan.status, kInvalidSpecCondition)->message, "spec.x: 1 is not allowed; allowed: 2");
  EXPECT_EQ(plan.status.attempt, 0);
  scene.status() = plan.status;
  scene.record().errors.clear();
  const Plan next = scene.Decide();
  EXPECT_EQ(next.status.attempt, 1);
  EXPECT_FALSE(IsTrue(next.status, kInvalidSpecCondition));
}

TEST(InvalidSpec, TheDryRunsVerdictStandsForItsGeneration) {
  Scene scene(1, 0);
  Observed observed = scene.Observe();
  observed.template_error = "unknown field \"spec.containrs\"";
  const Plan plan = MakePlan(observed, kNow);
  EXPECT_EQ(FindCondition(plan.status, kInvalidSpecCondition)->reason, "TemplateRefused");
  scene.status() = plan.status;
  EXPECT_EQ(scene.Decide().status.attempt, 0) << "the dry run is not repeated, and still holds";
  scene.job().generation = 2;
  EXPECT_EQ(scene.Decide().status.attempt, 1);
}

TEST(InvalidSpec, AFeatureThatIsNotThereSaysSo) {
  Json object = JobObject("job", 1);
  object["spec"]["scheduling"] = {{"gang", "volcano"}};
  const JobRecord record = JobFromApi(object);
  const Plan plan = MakePlan(SortPods(record, {}), kNow);
  EXPECT_EQ(FindCondition(plan.status, kInvalidSpecCondition)->reason, "NotYetSupported");
}

// Whatever a person writes into the opaque template: the pod is made, and the server refuses it.
TEST(WorkerPod, AnyTemplateMakesAPod) {
  const char* patches[] = {R"({"metadata":3})",
                           R"({"metadata":{"labels":[1],"annotations":"x"}})",
                           R"({"spec":{"volumes":3}})",
                           R"({"spec":{"containers":[{"name":"c","env":{},"volumeMounts":7}]}})",
                           R"({"spec":{"terminationGracePeriodSeconds":"long"}})",
                           R"({"spec":{"containers":[{"name":"c","terminationMessagePath":5,"resources":[]}]}})"};
  for (const char* patch : patches) {
    Json object = JobObject("job", 2);
    object["spec"]["template"].merge_patch(Json::parse(patch));
    const JobRecord record = JobFromApi(object);
    const Json pod = WorkerPod(record.job, 1, 1, "10.0.0.1");
    EXPECT_EQ(pod["metadata"]["name"], "job-1-1") << patch;
    EXPECT_EQ(pod["metadata"]["labels"]["trainyard.dev/rank"], "1") << patch;
  }
}

TEST(PodRecord, AnyStatusIsRead) {
  const char* pods[] = {
      "3", "null", R"({"metadata":[],"status":"x"})",
      R"({"status":{"conditions":[null,{"type":3}],"containerStatuses":[{"name":null,"state":{"terminated":{"exitCode":"1","finishedAt":null}}}]}})"};
  for (const char* pod : pods) EXPECT_EQ(PodFromJson(Json::parse(pod)).rank, -1) << pod;
}

TEST(MakePlan, AnotherControllersJobIsLeftAlone) {
  Scene scene(1, 0);
  scene.spec().managed_by = "someone/else";
  EXPECT_TRUE(api::MergeDiff(api::StatusToJson(scene.status()), api::StatusToJson(scene.Decide().status)).empty());
}

TEST(Progress, ReportsOfAnotherAttemptAreDropped) {
  Scene scene(1, 2);
  scene.Pod(0);
  Observed observed = scene.Observe();
  observed.report = Report{.job_uid = "uid-job",
                           .attempt = 1,
                           .progress = {.step = 5, .total_steps = 10, .percent = 50, .last_update = kNow},
                           .checkpoint = {}};
  EXPECT_EQ(MakePlan(observed, kNow).status.progress.step, 0);
  observed.report->attempt = 2;
  EXPECT_EQ(MakePlan(observed, kNow).status.progress.step, 5);
  observed.report->job_uid = "other";
  EXPECT_EQ(MakePlan(observed, kNow).status.progress.step, 0);
}

TEST(Progress, IsWrittenOnceInAWhile) {
  Scene scene(1);
  scene.Pod(0);
  scene.status().progress = {.step = 5, .total_steps = 100, .percent = 5, .last_update = After(kNow, -9)};
  Observed observed = scene.Observe();
  observed.report = Report{.job_uid = "uid-job",
                           .attempt = 1,
                           .progress = {.step = 8, .total_steps = 100, .percent = 8, .last_update = kNow},
                           .checkpoint = {}};
  EXPECT_EQ(MakePlan(observed, kNow).status.progress.step, 5);
  EXPECT_EQ(MakePlan(observed, After(kNow, 1)).status.progress.step, 8);
}

}  // namespace
}  // namespace trainyard::reconcile
