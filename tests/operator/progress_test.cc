#include "operator/reconcile/progress.h"

#include <gtest/gtest.h>

#include "tests/operator/builders.h"

namespace trainyard::reconcile {
namespace {

TEST(Progress, ReportsOfAnotherAttemptAreDropped) {
  Scene scene(1, 2);
  scene.Pod(0);
  Observed observed = scene.Observe();
  observed.report = Report{.job_uid = "uid-job",
                           .attempt = 1,
                           .progress = {.step = 5, .total_steps = 10, .percent = 50, .last_update = kNow},
                           .checkpoint = {}};
  EXPECT_FALSE(MakePlan(observed, kNow).status.progress.step);
  observed.report->attempt = 2;
  EXPECT_EQ(MakePlan(observed, kNow).status.progress.step, 5);
  observed.report->job_uid = "other";
  EXPECT_FALSE(MakePlan(observed, kNow).status.progress.step);
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

// What the poller wakes the job for.
TEST(Progress, AnAnswerIsNewsWhenTheStatusTakesIt) {
  api::JobStatus status;
  Report report{.progress = {.step = 8, .total_steps = 100}, .startup = {.rendezvous = 2}};
  EXPECT_TRUE(IsNews(report, status, 10, kNow)) << "the first";
  status.progress = {.step = 5, .total_steps = 100, .last_update = After(kNow, -9)};
  EXPECT_TRUE(IsNews(report, status, 10, kNow)) << "how long the start took";
  status.startup.rendezvous = 2;
  EXPECT_FALSE(IsNews(report, status, 10, kNow));
  EXPECT_TRUE(IsNews(report, status, 10, After(kNow, 1)));
  status.progress.step = 8;
  EXPECT_TRUE(IsNews(report, status, 10, After(kNow, 1))) << "that it was heard counts for stalls";
  report.progress.step = 100;
  EXPECT_TRUE(IsNews(report, status, 10, kNow)) << "the last step of all";
  status.progress.step = 100;
  EXPECT_FALSE(IsNews(report, status, 10, kNow));
}

// Of a clock that was set back, or of the operator before, whose clock was ahead.
TEST(Progress, AStampOfTheFutureStopsNothing) {
  Scene scene(1);
  scene.Pod(0);
  scene.status().progress = {.step = 5, .total_steps = 100, .percent = 5, .last_update = After(kNow, 7200)};
  Observed observed = scene.Observe();
  observed.report = Report{.job_uid = "uid-job",
                           .attempt = 1,
                           .progress = {.step = 8, .total_steps = 100, .percent = 8, .last_update = kNow},
                           .checkpoint = {}};
  EXPECT_EQ(MakePlan(observed, kNow).status.progress.step, 8);
}

// The last one is often known from what a worker left behind alone.
TEST(Progress, ANewerCheckpointLiesWhereTheOthersDo) {
  Scene scene(1);
  scene.status().checkpoint = {.step = 6, .time = kNow, .path = "/checkpoints", .bytes = 10};
  scene.Ended(0, 70, 1, LauncherMessage(9, 9));
  const api::CheckpointStatus newest = scene.Decide().status.checkpoint;
  EXPECT_EQ(newest.step, 9);
  EXPECT_EQ(newest.path, "/checkpoints");
  EXPECT_FALSE(newest.time || newest.bytes);
}

}  // namespace
}  // namespace trainyard::reconcile
