#include "operator/reconcile/status_writes.h"

#include <gtest/gtest.h>

#include <functional>
#include <map>

#include "operator/reconcile/conditions.h"
#include "tests/operator/builders.h"

namespace trainyard::reconcile {
namespace {

api::JobStatus Starting() {
  api::JobStatus status;
  status.attempt = 1;
  status.phase = api::kStarting;
  status.workers = {.desired = 4, .created = 4, .active = 1, .ready = 0};
  SetCondition(status, kScheduledCondition, false, "Waiting", "1 of 4 workers are scheduled", kNow, 1);
  return status;
}

TEST(StatusWrites, CountsAloneAreWrittenOnceASecond) {
  const api::JobStatus before = Starting();
  api::JobStatus after = before;
  after.workers.active = 4;
  after.workers.ready = 3;
  SetCondition(after, kScheduledCondition, true, "AllWorkersScheduled", "4 of 4 workers are scheduled", kNow, 1);
  EXPECT_NEAR(WriteDelay(before, after, 0.25, kNow), 0.75, 1e-9);
  EXPECT_EQ(WriteDelay(before, after, 1, kNow), 0);
  EXPECT_EQ(WriteDelay(before, after, std::nullopt, kNow), 0) << "nothing was written by this process";
  EXPECT_EQ(WriteDelay(before, before, 0.25, kNow), 0) << "there is nothing to come back for";
}

TEST(StatusWrites, CountsOfALongStartAreWrittenLessOften) {
  for (const auto& [age, interval] : std::map<double, double>{{0, 1}, {3, 1}, {6, 2}, {30, 10}, {3000, 10}}) {
    api::JobStatus before = Starting();
    before.attempt_time = After(kNow, -age);
    api::JobStatus after = before;
    after.workers.active = 4;
    EXPECT_NEAR(WriteDelay(before, after, 0.25, kNow), interval - 0.25, 1e-9) << age;
    EXPECT_EQ(WriteDelay(before, after, interval, kNow), 0) << age;
  }
}

TEST(StatusWrites, WhateverElseChangesIsWrittenAtOnce) {
  const api::JobStatus before = Starting();
  const std::function<void(api::JobStatus&)> changes[] = {
      [](api::JobStatus& status) { status.phase = api::kRunning; },
      [](api::JobStatus& status) { ++status.attempt; },
      [](api::JobStatus& status) { status.workers.failed = 1; },
      [](api::JobStatus& status) { status.workers.done = "0"; },
      [](api::JobStatus& status) { status.workers.created = 3; },
      [](api::JobStatus& status) { status.checkpoint.step = 5; },
      [](api::JobStatus& status) { SetCondition(status, kWorkersReadyCondition, false, "Waiting", "", kNow, 1); },
      [](api::JobStatus& status) { SetCondition(status, kFailedCondition, true, "MaxRestarts", "", kNow, 1); },
  };
  for (const auto& change : changes) {
    api::JobStatus after = before;
    after.workers.active = 2;
    change(after);
    EXPECT_EQ(WriteDelay(before, after, 0.01, kNow), 0) << api::StatusToJson(after).dump();
  }
}

}  // namespace
}  // namespace trainyard::reconcile
