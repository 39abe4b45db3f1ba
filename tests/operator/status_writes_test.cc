#include "operator/reconcile/status_writes.h"

#include <gtest/gtest.h>

#include <functional>
#include <map>
#include <utility>

#include "operator/reconcile/conditions.h"
#include "operator/reconcile/newest_two.h"
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

Since Written(double ago) { return {.written = ago, .made = std::nullopt, .others = std::nullopt}; }
Since Made(double written, double made) { return {.written = written, .made = made, .others = std::nullopt}; }

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
  for (const auto& [age, interval] : std::map<double, double>{{0, 1}, {3, 1}, {6, 2}, {30, 10}, {3000, 10}}) {
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
    EXPECT_EQ(WriteDelay(before, after, Made(0.01, 0.01), kNow), 0) << api::StatusToJson(after).dump();
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
  EXPECT_NEAR(WriteDelay(before, after, Made(100, 0.5), kNow), 4.5, 1e-9);
  EXPECT_NEAR(WriteDelay(before, after, Made(2, 100), kNow), 3, 1e-9);
  EXPECT_EQ(WriteDelay(before, after, Made(5, 5), kNow), 0);
}

TEST(StatusWrites, ThatAllPodsWereCreatedWaitsForThemToRun) {
  auto [before, after] = Created();
  EXPECT_NEAR(WriteDelay(before, after, Made(100, 0.5), kNow), 4.5, 1e-9);
  EXPECT_EQ(WriteDelay(before, after, Made(100, 5), kNow), 0);
  EXPECT_EQ(WriteDelay(before, after, Written(0.5), kNow), 0) << "this process has made none";
  before.phase = after.phase = api::kRestarting;
  EXPECT_NEAR(WriteDelay(before, after, Made(100, 0.5), kNow), 4.5, 1e-9);
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
    EXPECT_EQ(WriteDelay(before, after, Made(0.01, 0.01), kNow), 0) << api::StatusToJson(after).dump();
  }
}

// Created, and all of it runs: after an attempt's beginning, or after a restart.
std::pair<api::JobStatus, api::JobStatus> Running(bool again) {
  auto [before, after] = Created();
  if (again) {
    before.phase = api::kRestarting;
    for (api::JobStatus* status : {&before, &after}) {
      SetCondition(*status, kRunningCondition, false, "Restarting", "", kNow, 1);
      SetCondition(*status, kRestartingCondition, true, "WorkerFailed", "", kNow, 1);
    }
    ClearCondition(after, kRestartingCondition, "Running", "", kNow, 1);
  }
  after.phase = api::kRunning;
  SetCondition(after, kRunningCondition, true, "AllWorkersReady", "all workers of the attempt run", kNow, 1);
  return {before, after};
}

TEST(StatusWrites, AStartGivesWayToThePodsOfOtherJobs) {
  for (const bool again : {false, true}) {
    const auto [before, after] = Running(again);
    EXPECT_EQ(WriteDelay(before, after, {.written = 3, .made = 3, .others = 0.5}, kNow), 2) << again;
    EXPECT_NEAR(WriteDelay(before, after, {.written = 9, .made = 9.5, .others = 0.5}, kNow), 0.5, 1e-9) << again;
    EXPECT_EQ(WriteDelay(before, after, {.written = 10, .made = 10, .others = 0.5}, kNow), 0) << "ten seconds at most";
    EXPECT_EQ(WriteDelay(before, after, {.written = 3, .made = 3, .others = 1.5}, kNow), 0) << "no longer busy";
    EXPECT_EQ(WriteDelay(before, after, Made(3, 3), kNow), 0) << "nobody else's were created";
    EXPECT_EQ(WriteDelay(before, after, {.written = 3, .made = std::nullopt, .others = 0.5}, kNow), 0)
        << "this process has made none of it";
  }
  const auto [before, after] = Created();
  EXPECT_EQ(WriteDelay(before, after, {.written = 6, .made = 6, .others = 0.5}, kNow), 2) << "they do not run yet";
}

TEST(StatusWrites, NothingElseGivesWay) {
  const std::function<void(api::JobStatus&)> changes[] = {
      [](api::JobStatus& status) { ++status.attempt; },
      [](api::JobStatus& status) { status.phase = api::kFailed; },
      [](api::JobStatus& status) { status.workers.failed = 1; },
      [](api::JobStatus& status) { status.workers.done = "0"; },
      [](api::JobStatus& status) { status.checkpoint.step = 5; },
      [](api::JobStatus& status) { SetCondition(status, kSuspendedCondition, true, "Suspended", "", kNow, 1); },
      [](api::JobStatus& status) { SetCondition(status, kFailedCondition, true, "MaxRestarts", "", kNow, 1); },
  };
  for (const auto& change : changes) {
    auto [before, after] = Running(false);
    change(after);
    EXPECT_EQ(WriteDelay(before, after, {.written = 0.01, .made = 0.01, .others = 0.01}, kNow), 0)
        << api::StatusToJson(after).dump();
  }
}

TEST(StatusWrites, OthersAreAllButOneself) {
  NewestTwo made;
  const auto at = [](int64_t second) { return Instant(std::chrono::seconds(second)); };
  EXPECT_EQ(made.OfOthers("a"), std::nullopt);
  made.Note("a", at(1));
  made.Note("a", at(2));
  EXPECT_EQ(made.OfOthers("a"), std::nullopt);
  EXPECT_EQ(made.OfOthers("b"), at(2));
  made.Note("b", at(3));
  made.Note("b", at(4));
  EXPECT_EQ(made.OfOthers("a"), at(4));
  EXPECT_EQ(made.OfOthers("b"), at(2));
  made.Note("c", at(5));
  EXPECT_EQ(made.OfOthers("b"), at(5));
  EXPECT_EQ(made.OfOthers("c"), at(4));
}

}  // namespace
}  // namespace trainyard::reconcile
