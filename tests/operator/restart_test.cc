#include <gtest/gtest.h>

#include "operator/reconcile/conditions.h"
#include "operator/reconcile/policies.h"
#include "tests/operator/builders.h"

namespace trainyard::reconcile {
namespace {

TEST(Restart, AFailureOnlyAdvancesTheAttempt) {
  Scene scene(2);
  scene.Ended(1, 70, 20);
  scene.Pod(0);  // still in its collective
  const Plan plan = scene.Decide();
  EXPECT_EQ(plan.status.attempt, 2);
  EXPECT_EQ(plan.status.restarts.total, 1);
  EXPECT_EQ(plan.status.restarts.charged, 1);
  EXPECT_TRUE(plan.deletes.empty()) << "the old pods go in the next pass, because they are stale";
  EXPECT_TRUE(plan.creates.empty()) << "nothing is created for an attempt that was not read back";
  EXPECT_EQ(plan.status.phase, api::kRestarting);
}

TEST(Restart, WaitsForEvidenceAndJudgesTheCauseNotTheFirst) {
  Scene early(2);
  early.Ended(0, 69, 3);  // lost its peer; the peer's own end is not known yet
  early.Pod(1);
  const Plan wait = early.Decide();
  EXPECT_EQ(wait.status.attempt, 1);
  EXPECT_NEAR(wait.requeue_after_seconds.value_or(0), 12, 1e-9);

  Scene late(2);
  late.Ended(0, 69, 3);
  late.Ended(1, 73, 1);
  const Plan plan = late.Decide();
  EXPECT_EQ(plan.status.attempt, 2);
  ASSERT_TRUE(plan.status.last_failure);
  EXPECT_EQ(plan.status.last_failure->exit_code, 73);
  EXPECT_EQ(plan.status.last_failure->pod, "job-1-1");
}

TEST(Restart, AFailureShowsAtOnce) {
  Scene scene(2);
  SetCondition(scene.status(), kWorkersReadyCondition, true, "AllWorkersReady", "", kNow, 1);
  scene.Ended(1, 3, 1);
  scene.Pod(0);
  const Plan plan = scene.Decide();
  EXPECT_FALSE(IsTrue(plan.status, kWorkersReadyCondition));
  EXPECT_EQ(FindCondition(plan.status, kWorkersReadyCondition)->reason, "WorkerFailed");
  EXPECT_EQ(plan.status.phase, api::kRestarting);
  ASSERT_EQ(plan.events.size(), 1u);
  EXPECT_EQ(plan.events[0].message,
            "pod job-1-1 ended with 3 (ExitCode3); the other workers' ends are awaited for 15 s");
  scene.status() = plan.status;
  EXPECT_TRUE(scene.Decide(After(kNow, 1)).events.empty()) << "it is said once";
}

TEST(Restart, WhatIsSaidOfTheWaitGoesWithIt) {
  Scene scene(2);
  SetCondition(scene.status(), kWorkersReadyCondition, true, "AllWorkersReady", "", kNow, 1);
  scene.Ended(1, 65, 1);
  PodRecord& other = scene.Pod(0);
  scene.status() = scene.Decide().status;
  other.end = PodEnd{.exit_code = 69, .signal = 0, .reason = "Error", .init_container = "", .words = {}, .time = kNow};
  const Plan failed = scene.Decide();
  EXPECT_EQ(failed.status.phase, api::kFailed);
  EXPECT_EQ(FindCondition(failed.status, kWorkersReadyCondition)->reason, api::kFailed);
  EXPECT_EQ(FindCondition(failed.status, kWorkersReadyCondition)->message, "");
}

TEST(Restart, AWorkerThatEndsInGoodOrderBecauseItWasDisruptedHasNotSucceeded) {
  Scene scene(2);
  for (const int64_t rank : {0, 1}) {
    scene.Ended(rank, 0).disrupted = true;
  }
  EXPECT_EQ(StatusFromPods(scene.Observe(), kNow).status.workers.failed, 2);
  const Plan plan = scene.Decide();
  EXPECT_EQ(plan.status.attempt, 2);
  EXPECT_EQ(plan.status.restarts.total, 1);
  EXPECT_EQ(plan.status.restarts.charged, 0);
}

TEST(Restart, ADisruptionDoesNotExcuseWhatWasThereBefore) {
  for (const double before : {-5.0, 5.0}) {
    Scene scene(2);
    scene.Ended(1, 65, 10);
    PodRecord& disrupted = scene.Ended(0, 75, 1);
    disrupted.disrupted = true;
    disrupted.disrupted_at = After(kNow, -10 - before);
    disrupted.true_conditions = "Ready\nDisruptionTarget\n";
    EXPECT_EQ(scene.Decide().status.phase, before < 0 ? api::kFailed : api::kRestarting) << before;
  }
}

TEST(Restart, AnInitContainerIsNamed) {
  Scene scene(1);
  scene.Ended(0, 7, 1, "no such file").end->init_container = "data";
  const Plan plan = scene.Decide();
  EXPECT_EQ(plan.status.last_failure->message, "init container data: no such file");
}

TEST(Restart, ADisruptionIsFree) {
  for (const char* kind : {"condition", "deleted", "vanished"}) {
    Scene scene(2);
    scene.Ended(0, 69);
    if (std::string(kind) == "condition") {
      PodRecord& pod = scene.Ended(1, 137);
      pod.disrupted = true;
      pod.true_conditions = "Ready\nDisruptionTarget\n";
    } else if (std::string(kind) == "deleted") {
      scene.Ended(1, 75).deleting = true;
    }
    const Plan plan = scene.Decide();
    EXPECT_EQ(plan.status.restarts.total, 1) << kind;
    EXPECT_EQ(plan.status.restarts.charged, 0) << kind;
    ASSERT_TRUE(plan.status.last_failure) << kind;
    EXPECT_EQ(plan.status.last_failure->rank, 1) << kind;
  }
}

TEST(Restart, APodThatIsBeingTakenAwayExplainsItsPeersBeforeItHasEnded) {
  for (const bool disrupted : {false, true}) {
    Scene scene(2);
    scene.Ended(0, 69, 16);
    PodRecord& going = scene.Pod(1);
    going.deleting = true;
    going.deleted_at = After(kNow, -20);
    going.gone_by = After(kNow, 40);
    going.disrupted = disrupted;
    const Plan plan = scene.Decide();
    EXPECT_EQ(plan.status.restarts.total, 1) << "the evidence of 15 s is in";
    EXPECT_EQ(plan.status.restarts.charged, 0);
    EXPECT_EQ(plan.status.last_failure->pod, going.name);
    EXPECT_EQ(plan.status.last_failure->reason, disrupted ? "DisruptionTarget" : "PodDeleted");
    EXPECT_EQ(plan.status.last_failure->exit_code, std::nullopt);
  }
}

TEST(Restart, APodThatIsBeingTakenAwayEndsNoAttemptAloneAndExcusesNothingOfBefore) {
  const auto going = [](Scene& scene) {
    PodRecord& pod = scene.Pod(1);
    pod.deleting = true;
    pod.deleted_at = After(kNow, -20);
    pod.gone_by = After(kNow, 40);
  };
  Scene alone(2);
  alone.Pod(0);
  going(alone);
  EXPECT_EQ(alone.Decide().status.restarts.total, 0);

  Scene before(2);
  before.Ended(0, 139, 21);
  going(before);
  EXPECT_EQ(before.Decide().status.last_failure->signal, 11) << "it had failed before the other was told to go";
}

// Its pod's end lies in the future; the peer hangs and never ends.
TEST(Restart, ANodesClockThatIsAheadDoesNotHoldUpTheJudgement) {
  Scene scene(2);
  scene.Ended(0, 139, -600);
  scene.Pod(1);
  const Plan first = scene.Decide();
  ASSERT_EQ(first.status.restarts.total, 0) << "the peer's end is awaited";
  EXPECT_EQ(first.status.last_failure->time, kNow);
  scene.status() = first.status;
  EXPECT_EQ(scene.Decide(After(kNow, 14)).status.restarts.total, 0);
  const Plan judged = scene.Decide(After(kNow, 15));
  EXPECT_EQ(judged.status.restarts.total, 1);
  EXPECT_EQ(judged.status.last_failure->time, kNow);
}

TEST(Restart, TheWaitForEvidenceEndsAlsoWhenAPodVanished) {
  Scene scene(2);
  scene.Pod(0);  // goes on as if nothing had happened; worker 1 is gone without a trace
  const Plan first = scene.Decide();
  EXPECT_EQ(first.status.attempt, 1);
  ASSERT_TRUE(first.status.last_failure);
  scene.status() = first.status;
  EXPECT_EQ(scene.Decide(After(kNow, 14)).status.attempt, 1);
  const Plan last = scene.Decide(After(kNow, 15));
  EXPECT_EQ(last.status.attempt, 2);
  EXPECT_EQ(last.status.last_failure->time, kNow) << "when it was seen, not when it was judged";
  EXPECT_FALSE(last.status.last_failure->exit_code);
}

// A kubelet that has no room rejects a pod: phase Failed, no container, no time.
TEST(Restart, TheWaitForEvidenceEndsAlsoWhenAPodNeverRan) {
  Scene scene(2);
  scene.Pod(0);
  scene.Ended(1, 1).end->time = std::nullopt;
  const Plan first = scene.Decide();
  EXPECT_EQ(first.status.attempt, 1);
  EXPECT_NEAR(first.requeue_after_seconds.value_or(0), 15, 1e-9);
  scene.status() = first.status;
  EXPECT_EQ(scene.Decide(After(kNow, 14)).status.attempt, 1);
  const Plan last = scene.Decide(After(kNow, 15));
  EXPECT_EQ(last.status.attempt, 2);
  EXPECT_EQ(last.status.last_failure->time, kNow) << "when it was seen first";
}

TEST(Restart, AWorkerThatWasNeverCreatedHasNotVanished) {
  Scene scene(2);
  scene.status().workers.created = 1;
  scene.Pod(0);
  const Plan plan = scene.Decide();
  EXPECT_EQ(plan.status.attempt, 1);
  EXPECT_EQ(plan.creates, std::vector<int64_t>{1});
}

TEST(Restart, RulesDecideAndTheFirstMatchWins) {
  for (const int64_t code : {2, 64, 65, 72, 126, 127}) {
    Scene scene(1);
    scene.Ended(0, code);
    EXPECT_EQ(scene.Decide().status.phase, api::kFailed) << code;
  }
  Scene stopped(1);
  stopped.Ended(0, 75);
  const Plan free = stopped.Decide();
  EXPECT_EQ(free.status.restarts.total, 1);
  EXPECT_EQ(free.status.restarts.charged, 0);

  Scene own(1);
  own.spec().restart.rules = {{.on_exit_codes = {3}, .action = api::kRestartUncharged},
                              {.on_exit_codes = {3, 4}, .action = api::kFail},
                              {.on_reasons = {"OOMKilled"}, .action = api::kFail}};
  own.Ended(0, 3);
  EXPECT_EQ(own.Decide().status.restarts.charged, 0);
  for (const int64_t code : {4, 64}) {  // the job's own, and a default behind them
    Scene other(1);
    other.spec().restart.rules = own.spec().restart.rules;
    other.Ended(0, code);
    const Plan plan = other.Decide();
    EXPECT_EQ(plan.status.phase, api::kFailed);
    const std::string message = FindCondition(plan.status, kFailedCondition)->message;
    const std::string rule =
        code == 4 ? "spec.restart.rules[1] says Fail" : "the default rule for exit code 64 says Fail";
    EXPECT_NE(message.find(rule), std::string::npos) << message;
  }
  Scene rejected(1);  // by a kubelet: it never ran, and has no code
  rejected.spec().restart.rules = {{.on_exit_codes = {1}, .action = api::kFail}};
  PodEnd& end = *rejected.Ended(0, 1).end;
  end.exit_code.reset();
  end.reason = "OutOfcpu";
  const Plan again = rejected.Decide();
  EXPECT_NE(again.status.phase, api::kFailed);
  EXPECT_EQ(again.status.last_failure->reason, "OutOfcpu");
  EXPECT_FALSE(again.status.last_failure->exit_code);
  Scene reason(1);
  reason.spec().restart.rules = own.spec().restart.rules;
  reason.Ended(0, 137).end->reason = "OOMKilled";
  EXPECT_EQ(reason.Decide().status.phase, api::kFailed);
}

TEST(Restart, ProgressMakesARestartFree) {
  Scene scene(1);
  scene.status().restarts = {.total = 3, .charged = 2, .durable_step = 100};
  scene.Ended(0, 70, 1, LauncherMessage(120, 110));
  const Plan plan = scene.Decide();
  EXPECT_EQ(plan.status.restarts.total, 4);
  EXPECT_EQ(plan.status.restarts.charged, 2);
  EXPECT_EQ(plan.status.restarts.durable_step, 110);
  Scene again(1);
  again.status().restarts = plan.status.restarts;
  again.Ended(0, 70, 1, LauncherMessage(120, 110));
  EXPECT_EQ(again.Decide().status.restarts.charged, 3);
}

TEST(Restart, FailsWhenTheBudgetIsUsedUp) {
  Scene scene(1);
  scene.spec().restart.max_restarts = 2;
  scene.status().restarts = {.total = 2, .charged = 2, .durable_step = 0};
  scene.Ended(0, 70);
  const Plan plan = scene.Decide();
  EXPECT_EQ(plan.status.phase, api::kFailed);
  EXPECT_EQ(FindCondition(plan.status, kFailedCondition)->reason, "MaxRestarts");
  EXPECT_EQ(plan.status.attempt, 1);
  // A disruption does not need any.
  Scene free(1);
  free.spec().restart.max_restarts = 0;
  free.Ended(0, 75);
  EXPECT_EQ(free.Decide().status.attempt, 2);
}

TEST(Restart, TheSameFailureAtTheSameStepEndsTheJob) {
  Scene scene(1);
  scene.status().restarts.streak = api::FailureStreak{.reason = "InternalError", .step = 40, .count = 2};
  scene.status().checkpoint.step = scene.status().restarts.durable_step = 30;
  scene.Ended(0, 70, 1, LauncherMessage(40, 30));
  const Plan plan = scene.Decide();
  EXPECT_EQ(plan.status.phase, api::kFailed);
  EXPECT_EQ(FindCondition(plan.status, kFailedCondition)->reason, "SameStepLimit");
  // Elsewhere it counts anew.
  Scene elsewhere(1);
  elsewhere.status().restarts = scene.status().restarts;
  elsewhere.Ended(0, 70, 1, LauncherMessage(41, 30));
  EXPECT_EQ(elsewhere.Decide().status.restarts.streak->count, 1);
  // A newer checkpoint says that it does not stand still.
  Scene onwards(1);
  onwards.status().restarts = scene.status().restarts;
  onwards.Ended(0, 70, 1, LauncherMessage(40, 35));
  EXPECT_EQ(onwards.Decide().status.restarts.streak->count, 1);
}

// The kernel ends a trainer before it can say where it was.
TEST(Restart, AStepThatNobodyKnowsIsNotTheSameAsAnother) {
  Scene scene(1);
  for (int64_t failure = 1; failure <= 10; ++failure) {
    Scene next(1, failure);
    next.status().restarts = scene.status().restarts;
    next.Ended(0, 137).end->reason = "OOMKilled";
    scene.status() = next.Decide().status;
    EXPECT_EQ(scene.status().attempt, failure + 1);
    EXPECT_FALSE(scene.status().restarts.streak);
    EXPECT_FALSE(scene.status().last_failure->step);
  }
  Scene last(1, 11);
  last.status().restarts = scene.status().restarts;
  last.Ended(0, 137).end->reason = "OOMKilled";
  EXPECT_EQ(FindCondition(last.Decide().status, kFailedCondition)->reason, "MaxRestarts") << "ten are the budget";
}

// It ended before it had chosen where to start, and says so.
TEST(Restart, AStepThatIsNullInTheLastWordsIsUnknown) {
  Scene scene(1);
  for (int64_t failure = 1; failure <= 10; ++failure) {
    Scene next(1, failure);
    next.status().restarts = scene.status().restarts;
    next.Ended(0, 74, 1, R"({"v":1,"rank":0,"reason":"Storage","step":null,"checkpoint_step":0})");
    scene.status() = next.Decide().status;
    EXPECT_EQ(scene.status().attempt, failure + 1);
    EXPECT_FALSE(scene.status().restarts.streak);
    EXPECT_FALSE(scene.status().last_failure->step);
  }
}

TEST(Restart, WhatRankZeroAnsweredLastStandsForAWorkerThatCouldNotSay) {
  Scene scene(1);
  scene.Ended(0, 137).end->reason = "OOMKilled";
  Observed observed = scene.Observe();
  observed.report = Report{.job_uid = "uid-job", .attempt = 1, .progress = {.step = 7}, .checkpoint = {.step = 5}};
  const Plan plan = MakePlan(observed, kNow);
  EXPECT_EQ(plan.status.last_failure->step, 7);
  EXPECT_EQ(plan.status.restarts.streak->step, 7);
  EXPECT_EQ(plan.status.restarts.durable_step, 5);
}

TEST(Restart, TheLastTenFailuresStay) {
  Scene scene(1);
  scene.status().failures.resize(10, {.attempt = 0, .reason = "Old"});
  scene.Ended(0, 70, 1, LauncherMessage(40, 30)).node = "node-7";
  const Plan plan = scene.Decide();
  ASSERT_EQ(plan.status.failures.size(), 10u);
  EXPECT_EQ(plan.status.failures[0].attempt, 1);
  EXPECT_EQ(plan.status.failures[0].node, "node-7");
  EXPECT_EQ(plan.status.failures[0].step, 40);
  EXPECT_EQ(plan.status.failures[1].reason, "Old");
}

TEST(Restart, WaitsLongerEachTime) {
  Scene scene(1);
  api::JobStatus& status = scene.status();
  const std::pair<int64_t, double> waits[] = {{0, 0}, {1, 5}, {2, 10}, {3, 20}, {7, 300}, {1000, 300}};
  for (const auto& [repeats, seconds] : waits) {
    status.restarts.repeats = repeats;
    EXPECT_DOUBLE_EQ(RestartWait(scene.spec(), status), seconds) << repeats;
  }
}

struct WaitCase {
  const char* what;
  int64_t code;               // 75: a free restart
  int64_t total, repeats;     // before
  double running_seconds;     // since the attempt runs
  int64_t checkpoint, after;  // durable step; repeats afterwards
};

TEST(Restart, OnlyWhatRepeatsItselfWaits) {
  const WaitCase cases[] = {
      {"a first failure", 70, 0, 0, 60, 0, 1},
      {"a second one", 70, 1, 1, 60, 0, 2},
      {"a first disruption", 75, 0, 0, 60, 0, 0},
      {"a second one at once", 75, 1, 0, 60, 0, 1},
      {"a disruption after many failures, long ago", 75, 9, 7, 3600, 0, 0},
      {"a failure after many failures, long ago", 70, 9, 7, 3600, 0, 1},
      {"a disruption with a newer checkpoint", 75, 9, 7, 60, 12, 0},
      {"a failure with a newer checkpoint", 70, 9, 7, 60, 12, 0},
  };
  for (const WaitCase& c : cases) {
    Scene scene(1);
    scene.status().restarts = {.total = c.total, .charged = 0, .repeats = c.repeats};
    if (c.total > 0)
      SetCondition(scene.status(), kRestartingCondition, false, "Running", "", After(kNow, -c.running_seconds), 1);
    scene.Ended(0, c.code, 1, LauncherMessage(20, c.checkpoint));
    EXPECT_EQ(scene.Decide().status.restarts.repeats, c.after) << c.what;
  }
}

}  // namespace
}  // namespace trainyard::reconcile
