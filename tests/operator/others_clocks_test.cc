// Whose time counts: other clocks date what pods do, and a wait for something else is none.
#include <gtest/gtest.h>

#include "operator/base/json_access.h"
#include "tests/operator/trouble_fixture.h"

namespace trainyard::reconcile {
namespace {

// Every suspension would end the save that it gives time for.
TEST_F(TroubleTest, AClockThatIsAheadForcesNoDeletion) {
  Start(1);
  Live(2);
  BindPod("job-1-0");
  RunPod("job-1-0");
  ahead_.seconds = 7200;
  Live(2);
  Edit({{"suspend", true}});
  Live(60);
  ahead_.seconds *= 2;
  Live(60);
  EXPECT_EQ(client_.made["delete pods job-1-0"], 1);
  EXPECT_EQ(Pods(), 1u) << "its grace of 70 s and 60 s more are not over";
  Live(30);
  EXPECT_EQ(Pods(), 0u) << "and then it goes";
  EXPECT_EQ(Events("ForceDeleted"), 1);
}

// The same of the pods of a deleted job, for which the next of its name waits.
TEST_F(TroubleTest, AClockThatIsAheadForcesNoPodOfAnEarlierJob) {
  Start(1);
  Live(2);
  BindPod("job-1-0");
  RunPod("job-1-0");
  Remove();
  ahead_.seconds = 7200;
  Start(1);
  Live(60);
  ahead_.seconds *= 2;
  Live(60);
  EXPECT_EQ(Condition("WorkersReady")["reason"], "EarlierJob");
  EXPECT_EQ(client_.made["delete pods job-1-0"], 0) << "its grace of 70 s and 60 s more are not over";
  Live(30);
  EXPECT_EQ(client_.made["delete pods job-1-0"], 1) << "and then it goes";
  EXPECT_EQ(Events("ForceDeleted"), 1);
  EXPECT_EQ(StatusOfJob()["workers"].value("created", 0), 1);
}

// Someone drains its node, and it has its grace.
TEST_F(TroubleTest, AClockThatIsAheadLosesNoPod) {
  Start(2);
  Live(2);
  for (const char* pod : {"job-1-0", "job-1-1"}) {
    BindPod(pod);
    RunPod(pod);
  }
  Live(2);
  ahead_.seconds = 7200;
  api_.Delete(kube::kPods, "default", "job-1-1", {});
  Live(60);
  ahead_.seconds *= 2;
  Live(60);
  EXPECT_EQ(StatusOfJob()["attempt"], 1) << "its grace of 70 s and 60 s more are not over";
  Live(30);
  EXPECT_EQ(StatusOfJob()["attempt"], 2);
  EXPECT_EQ(StatusOfJob()["lastFailure"]["pod"], "job-1-1");
}

// A node's clock dates the end of its worker: one that is behind ends no wait for the others, and one that is ahead
// makes none longer.
TEST_F(TroubleTest, TheWaitForEvidenceGoesByTheOperatorsOwnClock) {
  for (const double ahead : {0, 7200, -7200}) {
    ahead_.seconds = ahead;
    Start(2);
    Live(2);
    EndPod("job-1-1", 69);
    Live(6);
    ahead_.seconds *= 2;
    Live(6);
    EXPECT_EQ(StatusOfJob()["attempt"], 1) << ahead;
    EndPod("job-1-0", 73);
    Live(2);
    EXPECT_EQ(StatusOfJob()["attempt"], 2) << ahead;
    EXPECT_EQ(StatusOfJob()["lastFailure"]["exitCode"], 73) << ahead << ": the cause, which came last";
    Remove();
    Start(2);
    Live(2);
    EndPod("job-1-1", 69);
    Live(16);
    EXPECT_EQ(StatusOfJob()["attempt"], 2) << ahead << ": the other never ends";
    Remove();
  }
}

// A queue, or an autoscaler, lets pods wait, and the scheduler's first word is that there is no node.
TEST_F(TroubleTest, AWaitForItsTurnIsNoWaitForANode) {
  Start(1);
  Live(2);
  const Json avoided = {{{"node", "n1"}, {"failures", 5}, {"until", FormatTime(After(clock_.Now(), 1e6))}}};
  const Json patch = {{"status", {{"avoidedNodes", avoided}}}};
  ASSERT_TRUE(api_.Patch(kube::kTrainingJobs, "default", "job", "status", local::PatchType::kMerge, patch, {}).ok());
  const auto gate = [&](const char* reason) {
    SetPod("job-1-0", {{"conditions", {{{"type", "PodScheduled"}, {"status", "False"}, {"reason", reason}}}}});
  };
  gate("SchedulingGated");
  Live(600);
  gate("Unschedulable");
  Live(100);
  EXPECT_EQ(StatusOfJob()["attempt"], 1);
  Live(25);
  EXPECT_EQ(StatusOfJob()["attempt"], 2) << "after two minutes of which no node was one";
}

}  // namespace
}  // namespace trainyard::reconcile
