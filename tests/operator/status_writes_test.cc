#include "operator/reconcile/status_writes.h"

#include <gtest/gtest.h>

#include <functional>
#include <map>
#include <utility>

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

Since Written(double ago) { return {.written = ago, .made = std::nullopt}; }

TEST(StatusWrites, CountsAloneAreWrittenOnceASecond) {
  const api::JobStatus before = Starting();
  api::JobStatus after = before;
  after.workers.active = 4;
  after.workers.ready = 3;
  SetCondition(after, kScheduledCondition, true, "AllWorkersScheduled", "4 of 4 workers are scheduled", kNow, 1);
  EXPECT_NEAR(WriteDelay(before, after, Written(0.25), kNow), 0.75, 1e-9);
  EXPECT_EQ(WriteDelay(before, after, Written(1), kNow), 0);
  EXPECT_EQ(WriteDelay(before, after, {}, kNow), 0) << "nothing was written by this process";
  EXPECT_EQ(WriteDelay(before, before, Written(0.25), kNow), 0) << "there is nothing to come back for";
}

TEST(StatusWrites, CountsOfALongStartAreWrittenLessOften) {
  for (const auto& [age, interval] : std::map<double, double>{{0, 1}, {2, 1}, {6, 3}, {20, 10}, {3000, 10}}) {
    api::JobStatus before = Starting();
    before.attempt_time = After(kNow, -age);
    api::JobStatus after = before;
    after.workers.active = 4;
    EXPECT_NEAR(WriteDelay(before, after, Written(0.25), kNow), interval - 0.25, 1e-9) << age;
    EXPECT_EQ(WriteDelay(before, after, Written(interval), kNow), 0) << age;
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
    EXPECT_EQ(WriteDelay(before, after, {.written = 0.01, .made = 0.01}, kNow), 0) << api::StatusToJson(after).dump();
  }
}

// What an attempt's beginning writes, and what is known once its pods were created.
std::pair<api::JobStatus, api::JobStatus> Created() {
  api::JobStatus before;
  before.attempt = 1;
  before.phase = api::kPending;
  before.workers.desired = 4;
  before.master.port = 29500;
  api::JobStatus after = before;
  after.phase = api::kStarting;
  after.workers.created = after.workers.active = 4;
  after.master.address = "10.0.0.1";
  SetCondition(after, kScheduledCondition, false, "Waiting", "0 of 4 workers are scheduled", kNow, 1);
  SetCondition(after, kWorkersReadyCondition, false, "Waiting", "0 of 4 workers are ready", kNow, 1);
  return {before, after};
}

TEST(StatusWrites, ThatMorePodsWereCreatedIsWrittenEveryFiveSeconds) {
  auto [before, after] = Created();
  after.workers.created = after.workers.active = 3;
  EXPECT_NEAR(WriteDelay(before, after, {.written = 100, .made = 0.5}, kNow), 4.5, 1e-9);
  EXPECT_NEAR(WriteDelay(before, after, {.written = 2, .made = 100}, kNow), 3, 1e-9);
  EXPECT_EQ(WriteDelay(before, after, {.written = 5, .made = 5}, kNow), 0);
  before.attempt_time = after.attempt_time = After(kNow, -30);
  EXPECT_NEAR(WriteDelay(before, after, {.written = 2, .made = 25}, kNow), 8, 1e-9) << "it takes long";
  after.workers.created = after.workers.active = 4;
  EXPECT_NEAR(WriteDelay(before, after, {.written = 2, .made = 25}, kNow), 3, 1e-9) << "these were the last";
}

TEST(StatusWrites, ThatAllPodsWereCreatedWaitsForThemToRun) {
  auto [before, after] = Created();
  EXPECT_NEAR(WriteDelay(before, after, {.written = 100, .made = 0.5}, kNow), 4.5, 1e-9);
  EXPECT_EQ(WriteDelay(before, after, {.written = 100, .made = 5}, kNow), 0);
  EXPECT_NEAR(WriteDelay(before, after, {.written = 2, .made = 7}, kNow), 3, 1e-9)
      << "that some were, was just written";
  EXPECT_EQ(WriteDelay(before, after, {}, kNow), 0) << "this process has made none";
  before.phase = after.phase = api::kRestarting;
  EXPECT_NEAR(WriteDelay(before, after, {.written = 100, .made = 0.5}, kNow), 4.5, 1e-9);
}

TEST(StatusWrites, WhatComesWithTheCreationIsNoReasonToWait) {
  const std::function<void(api::JobStatus&)> changes[] = {
      [](api::JobStatus& status) { status.phase = api::kRunning; },
      [](api::JobStatus& status) { status.workers.failed = 1; },
      [](api::JobStatus& status) { status.checkpoint.step = 5; },
      [](api::JobStatus& status) { SetCondition(status, kRunningCondition, true, "AllWorkersReady", "", kNow, 1); },
  };
  for (const auto& change : changes) {
    auto [before, after] = Created();
    change(after);
    EXPECT_EQ(WriteDelay(before, after, {.written = 0.01, .made = 0.01}, kNow), 0) << api::StatusToJson(after).dump();
  }
}

}  // namespace
}  // namespace trainyard::reconcile
