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

}  // namespace
}  // namespace trainyard::reconcile
