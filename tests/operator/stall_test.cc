#include <gtest/gtest.h>

#include <cmath>

#include "operator/reconcile/conditions.h"
#include "operator/reconcile/policies.h"
#include "tests/operator/builders.h"

namespace trainyard::reconcile {
namespace {

// A job that runs, and rank 0's answers to it: each is one reconcile, `seconds` after the beginning.
class Stall : public testing::Test {
 protected:
  Stall() {
    scene_.Run(2);
    scene_.status().spec_hash = SpecHash(scene_.job());
    scene_.status() = scene_.Decide().status;
  }
  // Rank 0 says that it got on last at `progress` seconds, by a clock that is wrong by a day.
  Plan Answer(double seconds, std::optional<double> progress, std::optional<int64_t> step = std::nullopt) {
    last_ =
        Report{.job_uid = "uid-job", .attempt = scene_.status().attempt, .progress = {.step = step}, .checkpoint = {}};
    last_->progress.last_update = After(kNow, seconds);
    if (progress) last_->progress.last_progress = After(kNow, *progress - 86400);
    return Look(seconds);
  }
  // Without a new answer.
  Plan Look(double seconds) {
    Observed observed = scene_.Observe();
    observed.report = last_;
    Plan plan = MakePlan(observed, After(kNow, seconds));
    scene_.status() = plan.status;
    return plan;
  }
  bool Is(const char* condition) { return IsTrue(scene_.status(), condition); }

  Scene scene_{2};
  std::optional<Report> last_;
};

TEST_F(Stall, IsSaidAndThenEndsTheAttempt) {
  Answer(0, 0, 17);
  for (double at = 30; at < 600; at += 30) EXPECT_TRUE(Answer(at, 0, 17).events.empty());
  EXPECT_FALSE(Is(kStalledCondition));
  const Plan said = Answer(600, 0, 17);
  EXPECT_TRUE(Is(kStalledCondition));
  EXPECT_EQ(said.status.attempt, 1) << "it is said first, and read back";
  EXPECT_LE(said.requeue_after_seconds.value_or(1e9), 1);
  ASSERT_EQ(said.events.size(), 1u);
  EXPECT_EQ(said.events[0].message,
            "no progress for 600 s (spec.deadlines.stallSeconds), at step 17: rank 0 answers, and its "
            "last_progress_time has not moved since 2026-03-01T12:00:00Z");
  const Plan ended = Look(601);
  EXPECT_EQ(ended.status.attempt, 2);
  EXPECT_EQ(ended.status.restarts.charged, 1);
  ASSERT_TRUE(ended.status.last_failure);
  EXPECT_EQ(ended.status.last_failure->reason, "Hang");
  EXPECT_EQ(ended.status.last_failure->step, 17);
  EXPECT_EQ(ended.status.last_failure->pod, "job-1-0");
  EXPECT_EQ(ended.status.last_failure->node, "") << "nobody knows whose fault it is";
  EXPECT_FALSE(Is(kStalledCondition));
}

TEST_F(Stall, ProgressBeginsAnew) {
  for (double at = 0; at < 3000; at += 30) Answer(at, at - std::fmod(at, 570));
  EXPECT_EQ(scene_.status().attempt, 1);
}

TEST_F(Stall, WhatGotOnAfterAllIsLeftAlone) {
  for (double at = 0; at <= 600; at += 30) Answer(at, 0);
  EXPECT_TRUE(Is(kStalledCondition));
  Answer(630, 620);
  EXPECT_FALSE(Is(kStalledCondition));
  EXPECT_EQ(scene_.status().attempt, 1);
}

TEST_F(Stall, AnotherOperatorAsksForItselfBeforeItEndsAnything) {
  for (double at = 0; at <= 600; at += 30) Answer(at, 0);
  ASSERT_TRUE(Is(kStalledCondition));
  last_.reset();
  const Plan taken_over = Look(620);
  EXPECT_EQ(taken_over.status.attempt, 1) << "nobody has answered this operator yet";
  EXPECT_TRUE(taken_over.events.empty());
  EXPECT_TRUE(Is(kStalledCondition));
  EXPECT_EQ(Answer(621, 0).status.attempt, 2);
}

TEST_F(Stall, AnAnswerThatIsNotInTheStatusYetCountsToo) {
  for (double at = 0; at <= 600; at += 30) Answer(at, 0);
  ASSERT_TRUE(Is(kStalledCondition));
  EXPECT_EQ(Answer(601, 600).status.attempt, 1) << "the status takes an answer every ten seconds";
  Answer(610, 600);
  EXPECT_FALSE(Is(kStalledCondition));
}

TEST_F(Stall, SilenceIsNoStall) {
  Answer(0, 0);
  Look(59);
  EXPECT_FALSE(Is(kProgressUnknownCondition));
  Look(60);
  EXPECT_TRUE(Is(kProgressUnknownCondition));
  const Plan again = Look(70);
  EXPECT_TRUE(again.events.empty());
  Look(100000);
  EXPECT_EQ(scene_.status().attempt, 1) << "unreachable is never stalled";
  // The time without an answer does not count.
  Answer(100001, 0);
  EXPECT_FALSE(Is(kProgressUnknownCondition));
  EXPECT_FALSE(Is(kStalledCondition));
  double at = 100001;
  for (; at < 100001 + 590; at += 30) Answer(at, 0);
  EXPECT_FALSE(Is(kStalledCondition));
  Answer(100001 + 600, 0);
  EXPECT_TRUE(Is(kStalledCondition));
}

TEST_F(Stall, AClockThatIsSetBackHidesNoHang) {
  for (double at = 4000; at < 4590; at += 30) Answer(at, 0);
  EXPECT_FALSE(Is(kStalledCondition));
  for (double at = 1000; at < 1060; at += 30) Answer(at, 0);
  EXPECT_TRUE(Is(kStalledCondition)) << "it has stood still for ten minutes, whatever the clock says";
}

TEST_F(Stall, AnotherOperatorCountsOn) {
  for (double at = 0; at < 590; at += 30) Answer(at, 0);
  last_.reset();  // it has not heard of rank 0 yet
  Look(591);
  EXPECT_FALSE(Is(kStalledCondition));
  Answer(605, 0);
  EXPECT_TRUE(Is(kStalledCondition)) << "what the first one saw is in the status";
}

TEST_F(Stall, AProgramThatTellsNothingNeverStalls) {
  for (double at = 0; at < 5000; at += 30) Look(at);
  for (double at = 5000; at < 10000; at += 30) Answer(at, std::nullopt, 4);
  EXPECT_EQ(scene_.status().attempt, 1);
  EXPECT_FALSE(FindCondition(scene_.status(), kStalledCondition));
  EXPECT_FALSE(FindCondition(scene_.status(), kProgressUnknownCondition));
}

TEST_F(Stall, TheNextAttemptCountsFromItsOwnFirstAnswer) {
  for (double at = 0; at <= 600; at += 30) Answer(at, 0);
  Look(601);
  ASSERT_EQ(scene_.status().attempt, 2);
  EXPECT_FALSE(scene_.status().progress.last_progress_seen);
}

TEST_F(Stall, NothingIsWrittenWhileNobodyAnswers) {
  Answer(0, 0);
  Look(61);
  const Json before = api::StatusToJson(scene_.status());
  Look(500);
  EXPECT_TRUE(api::MergeDiff(before, api::StatusToJson(scene_.status())).empty());
}

TEST_F(Stall, ARuleMayNameIt) {
  scene_.spec().restart.rules = {
      {.on_pod_condition = "", .on_exit_codes = {}, .on_reasons = {"Hang"}, .action = api::kRestartUncharged}};
  for (double at = 0; at <= 600; at += 30) Answer(at, 0);
  EXPECT_EQ(Look(601).status.restarts.charged, 0);
  EXPECT_EQ(scene_.status().restarts.total, 1);
}

}  // namespace
}  // namespace trainyard::reconcile
