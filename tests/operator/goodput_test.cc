#include <gtest/gtest.h>

#include "operator/reconcile/conditions.h"
#include "operator/reconcile/policies.h"
#include "tests/operator/builders.h"

namespace trainyard::reconcile {
namespace {

// A life of a job, told status by status: each write says what is true from then on.
class Life {
 public:
  Life() { job_.created = kNow; }

  api::JobStatus& next() { return next_; }
  const api::Goodput& goodput() const { return job_.status.goodput; }

  // `seconds` later next() is written.
  Life& Write(double seconds) {
    now_ = After(now_, seconds);
    AccountTime(job_, next_, now_);
    // As the API keeps it: whole seconds.
    std::vector<api::FieldError> errors;
    Json object = JobObject("job", 2);
    object["status"] = api::StatusToJson(next_);
    next_ = api::JobFromJson(object, errors).status;
    job_.status = next_;
    const api::LostSeconds& lost = goodput().lost_seconds;
    const int64_t sum = goodput().training_seconds + lost.queue + lost.startup + lost.restart +
                        lost.replay.value_or(0) + lost.stall.value_or(0);
    EXPECT_EQ(sum + not_counted_, SecondsBetween(kNow, *goodput().as_of)) << "each second is counted once";
    return *this;
  }
  Life& Suspended(int64_t seconds) {
    not_counted_ += seconds;
    return Write(static_cast<double>(seconds));
  }
  Life& Set(const char* type, bool holds) {
    SetCondition(next_, type, holds, "Test", "", now_, 1);
    return *this;
  }
  Life& Tell(int64_t step, double in) {
    next_.progress.step = step;
    next_.progress.last_update = After(now_, in);
    return *this;
  }
  Life& Begin(int64_t attempt) {
    next_.attempt = attempt;
    next_.attempt_time = now_;
    next_.startup = {};
    next_.goodput.step.reset();
    next_.workers.created = 0;
    Set(kScheduledCondition, false).Set(kRunningCondition, false);
    return *this;
  }
  Life& Run() {
    next_.workers.created = 2;
    return Set(kScheduledCondition, true).Set(kRunningCondition, true).Set(kRestartingCondition, false);
  }
  Life& Fail(const std::string& reason, std::optional<int64_t> step) {
    next_.last_failure = api::Failure{.attempt = job_.status.attempt, .reason = reason, .step = step};
    return *this;
  }

 private:
  TrainingJob job_;
  api::JobStatus next_;
  Time now_ = kNow;
  int64_t not_counted_ = 0;
};

TEST(Goodput, TheFirstAttempt) {
  Life life;
  life.Begin(1).Write(1);
  life.Set(kScheduledCondition, true).Write(30);
  life.Run().Write(60);
  EXPECT_EQ(life.goodput().lost_seconds.queue, 31);
  EXPECT_EQ(life.goodput().lost_seconds.startup, 60);
  EXPECT_FALSE(life.goodput().lost_seconds.replay) << "nobody has told a step";
  // It tells that the ranks have met, and loads.
  life.next().startup = {.queued = 1, .scheduled = 29, .pulled = 55, .rendezvous = 4, .from_step = 0};
  life.Tell(0, 10).Write(10);
  EXPECT_EQ(life.goodput().lost_seconds.startup, 70);
  // The first step was done 112 s after the attempt's beginning, by the sum of the stages: 11 s after that.
  life.next().startup.first_step = 23;
  life.Tell(9, 30).Write(30);
  EXPECT_EQ(life.goodput().lost_seconds.startup, 81);
  EXPECT_EQ(life.goodput().training_seconds, 19);
  EXPECT_EQ(life.goodput().lost_seconds.replay, 0);
}

// Trained to step 100, resumed at 60: 40 of the next steps are done a second time.
TEST(Goodput, ReplayedSteps) {
  Life life;
  life.Begin(1).Write(0);
  life.Run().Write(0);
  life.next().startup = {.queued = 0, .scheduled = 0, .pulled = 0, .rendezvous = 0, .first_step = 0, .from_step = 0};
  life.Tell(100, 200).Write(200);
  EXPECT_EQ(life.goodput().training_seconds, 200);
  life.Fail("PeerFailed", 100).Set(kRunningCondition, false).Write(5);
  life.Set(kRestartingCondition, true).Begin(2).Write(15);
  life.Write(10);
  EXPECT_EQ(life.goodput().lost_seconds.restart, 25);
  life.Run().Write(3);
  EXPECT_EQ(life.goodput().lost_seconds.restart, 28);
  life.next().startup = {.queued = 3, .scheduled = 0, .pulled = 0, .rendezvous = 5, .first_step = 5, .from_step = 60};
  life.Tell(160, 110).Write(110);
  // The start took 13 s from the attempt's beginning, 13 s before the workers ran.
  EXPECT_EQ(life.goodput().lost_seconds.startup, 0);
  EXPECT_EQ(life.goodput().lost_seconds.replay, 44) << "40 of the 100 steps of 110 s";
  EXPECT_EQ(life.goodput().training_seconds, 205 + 66);
  EXPECT_EQ(life.goodput().furthest_step, 160);
}

TEST(Goodput, AHangIsLost) {
  Life life;
  life.Begin(1).Write(0);
  life.Run().Write(0);
  life.next().startup = {.queued = 0, .scheduled = 0, .pulled = 0, .rendezvous = 0, .first_step = 0, .from_step = 0};
  life.Tell(10, 20).Write(20);
  life.next().progress.last_progress_seen = life.next().progress.last_update;
  for (int i = 0; i < 60; ++i) life.Tell(10, 10).Write(10);
  EXPECT_EQ(life.goodput().training_seconds, 20) << "what it is, is not known";
  life.Fail("Hang", 10).Set(kRestartingCondition, true).Begin(2).Write(2);
  EXPECT_EQ(life.goodput().lost_seconds.stall, 600);
  EXPECT_EQ(life.goodput().training_seconds, 22) << "behind the last answer it may have trained";
}

TEST(Goodput, ASlowStepIsNoHang) {
  Life life;
  life.Begin(1).Write(0);
  life.Run().Write(0);
  life.next().startup = {.queued = 0, .scheduled = 0, .pulled = 0, .rendezvous = 0, .first_step = 0, .from_step = 0};
  life.Tell(1, 60).Write(60);
  life.next().progress.last_progress_seen = life.next().progress.last_update;
  life.Tell(1, 50).Write(50).Tell(2, 10).Write(10);
  EXPECT_EQ(life.goodput().training_seconds, 120);
  EXPECT_EQ(life.goodput().lost_seconds.stall, 0);
}

TEST(Goodput, AnImageThatTellsNothingTrainsWhileItRuns) {
  Life life;
  life.Begin(1).Write(4);
  life.Run().Write(6);
  life.Set(kCompleteCondition, true).Write(100);
  EXPECT_EQ(life.goodput().lost_seconds.queue, 10);
  EXPECT_EQ(life.goodput().training_seconds, 100);
  EXPECT_FALSE(life.goodput().lost_seconds.replay);
  EXPECT_FALSE(life.goodput().lost_seconds.stall);
  life.Write(1000);
  EXPECT_EQ(life.goodput().training_seconds, 100) << "it has ended";
}

TEST(Goodput, ATrainerThatEndsWhileItLoadsHasNotTrained) {
  Life life;
  life.Begin(1).Write(0);
  life.Run().Write(0);
  life.next().startup = {.queued = 0, .scheduled = 0, .pulled = 0, .rendezvous = 2, .first_step = {}, .from_step = {}};
  life.Fail("BadData", std::nullopt).Set(kFailedCondition, true).Write(40);
  EXPECT_EQ(life.goodput().lost_seconds.startup, 40);
  EXPECT_EQ(life.goodput().training_seconds, 0);
}

TEST(Goodput, ASuspensionIsNeitherTrainedNorLost) {
  Life life;
  life.Begin(1).Write(0);
  life.Run().Write(0);
  life.Begin(2).next().phase = api::kSuspending;
  life.Write(50);
  EXPECT_EQ(life.goodput().training_seconds, 50);
  life.Set(kSuspendedCondition, true).next().phase = api::kSuspended;
  life.Suspended(30);
  life.Set(kSuspendedCondition, false).next().phase = api::kPending;
  life.Suspended(3600);
  life.Run().Write(7);
  EXPECT_EQ(life.goodput().lost_seconds.queue, 7);
}

// An operator that kept no account wrote its status.
TEST(Goodput, WhatNobodyHasCountedIsUnknown) {
  TrainingJob job;
  job.created = After(kNow, -30 * 86400);
  job.status.attempt = 1;
  for (const char* type : {kScheduledCondition, kRunningCondition})
    SetCondition(job.status, type, true, "Test", "", *job.created, 1);
  api::JobStatus next = job.status;
  AccountTime(job, next, kNow);
  EXPECT_EQ(next.goodput.training_seconds + next.goodput.lost_seconds.startup, 0);
  EXPECT_EQ(next.goodput.as_of, kNow);
  job.status = next;
  next.progress = {.step = 5, .last_update = After(kNow, 10)};
  AccountTime(job, next, After(kNow, 10));
  EXPECT_EQ(next.goodput.training_seconds, 10);
}

// Its pods went before anyone saw the suspension.
TEST(Goodput, WhatRanUntilTheJobIsSuspendedHasTrained) {
  Life life;
  life.Begin(1).Write(0);
  life.Run().Write(0);
  life.Set(kRunningCondition, false).Set(kSuspendedCondition, true).next().phase = api::kSuspended;
  life.Write(50);
  EXPECT_EQ(life.goodput().training_seconds, 50);
  life.Set(kSuspendedCondition, false).next().phase = api::kPending;
  life.Suspended(3600);
  EXPECT_EQ(life.goodput().training_seconds, 50);
}

TEST(Goodput, AClockThatWasSetBackCountsNothingTwice) {
  Life life;
  life.Begin(1).Write(100);
  const Time as_of = *life.goodput().as_of;
  life.Run().Write(-50);
  EXPECT_EQ(life.goodput().as_of, as_of);
  life.Write(60);
  EXPECT_EQ(life.goodput().lost_seconds.queue, 100);
}

TEST(Startup, IsMeasuredFromThePods) {
  Scene scene(2);
  scene.status().attempt_time = After(kNow, -100.5);
  for (int rank = 0; rank < 2; ++rank) {
    PodRecord& pod = scene.Pod(rank);
    pod.created = After(kNow, -98 + rank);
    pod.scheduled_at = After(kNow, -60 - rank);
    if (rank == 0) pod.started_at = After(kNow, -20);
  }
  const api::Startup startup = scene.Decide().status.startup;
  EXPECT_EQ(startup.queued, 4) << "to the last pod's creation";
  EXPECT_EQ(startup.scheduled, 37);
  EXPECT_FALSE(startup.pulled) << "one has not started";
  EXPECT_FALSE(startup.rendezvous);
  EXPECT_FALSE(startup.from_step);
}

TEST(Startup, WhatRankZeroSaysCountsForItsAttemptAlone) {
  Scene scene(1);
  scene.Run(1);
  Observed observed = scene.Observe();
  observed.report = Report{.job_uid = scene.job().uid, .attempt = 1};
  observed.report->startup = {.rendezvous = 1.5, .first_step = 20, .from_step = 40};
  const api::Startup startup = MakePlan(observed, kNow).status.startup;
  EXPECT_EQ(startup.rendezvous, 1.5);
  EXPECT_EQ(startup.first_step, 20);
  EXPECT_EQ(startup.from_step, 40);
  observed.report->attempt = 2;
  EXPECT_FALSE(MakePlan(observed, kNow).status.startup.rendezvous);
}

TEST(Startup, OfARunThatNobodyAskedInTimeStandsInItsLastWords) {
  Scene scene(2);
  SetCondition(scene.status(), kScheduledCondition, true, "Test", "", kNow, 1);
  SetCondition(scene.status(), kRunningCondition, true, "Test", "", kNow, 1);
  scene.status().goodput.as_of = After(kNow, -60);
  scene.status().attempt_time = After(kNow, -60);
  const std::string words =
      R"({"v":1,"step":80,"startup":{"step":40,"rendezvous_seconds":1.23456789,"first_step_seconds":20}})";
  scene.Ended(0, 0, 1, words);
  scene.Ended(1, 0, 1, R"({"v":1,"step":80,"startup":{"step":7,"rendezvous_seconds":9,"first_step_seconds":9}})");
  api::JobStatus status = scene.Decide().status;
  AccountTime(scene.job(), status, kNow);
  EXPECT_EQ(status.phase, api::kSucceeded);
  EXPECT_EQ(status.startup.rendezvous, 1.23457) << "rank 0's, to six digits";
  EXPECT_EQ(status.startup.first_step, 20);
  EXPECT_EQ(status.startup.from_step, 40);
  EXPECT_EQ(status.goodput.lost_seconds.startup, 21);
  EXPECT_EQ(status.goodput.training_seconds, 39);
  EXPECT_EQ(status.goodput.lost_seconds.replay, 0) << "known, as the steps are";
}

TEST(Startup, LastWordsThatCannotBeTrueSayNothing) {
  for (const char* startup : {"null", "7", "[]", R"({"step":-1,"rendezvous_seconds":-2,"first_step_seconds":1e10})",
                              R"({"step":"1","rendezvous_seconds":"2","first_step_seconds":true})"}) {
    const api::Startup read = ReadLastWords(std::string(R"({"v":1,"startup":)") + startup + "}").startup;
    EXPECT_FALSE(read.from_step || read.rendezvous || read.first_step) << startup;
  }
}

}  // namespace
}  // namespace trainyard::reconcile
