#include <gtest/gtest.h>

#include "operator/reconcile/conditions.h"
#include "operator/reconcile/culprit.h"
#include "operator/reconcile/policies.h"
#include "tests/operator/builders.h"

namespace trainyard::reconcile {
namespace {

std::string Message(int64_t step, int64_t checkpoint, const std::string& reason = "InternalError") {
  return Json{{"v", 1},
              {"attempt", 1},
              {"rank", 1},
              {"exit_code", 70},
              {"signal", 0},
              {"reason", reason},
              {"step", step},
              {"checkpoint_step", checkpoint},
              {"message", "it broke"},
              {"tail", {"last line"}}}
      .dump();
}

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
  ASSERT_TRUE(plan.status.first_failure);
  EXPECT_EQ(plan.status.first_failure->exit_code, 73);
  EXPECT_EQ(plan.status.first_failure->pod, "job-1-1");
}

struct OrderCase {
  const char* name;
  std::vector<int64_t> codes;  // of workers 0, 1, ...
  int64_t culprit;
};

TEST(Restart, TheOrderOfCauses) {
  const OrderCase cases[] = {
      {"permanent before hang", {73, 64}, 1},  {"hang before memory", {71, 73}, 1},
      {"memory before internal", {70, 71}, 1}, {"internal before signal", {139, 70}, 1},
      {"signal before stopped", {75, 137}, 1}, {"stopped before peer", {69, 75}, 1},
      {"unlisted like internal", {137, 5}, 1}, {"storage like internal", {69, 74}, 1},
      {"the earliest of equals", {70, 70}, 0}, {"permanent before all", {75, 69, 70, 2}, 3},
  };
  for (const OrderCase& c : cases) {
    Scene scene(static_cast<int64_t>(c.codes.size()));
    for (size_t i = 0; i < c.codes.size(); ++i)
      scene.Ended(static_cast<int64_t>(i), c.codes[i], 5 - static_cast<double>(i));
    const Observed observed = scene.Observe();
    EXPECT_EQ(Culprit(FailedWorkers(observed, kNow), observed.job.spec.restart.rules).worker, c.culprit) << c.name;
  }
}

TEST(Restart, ADisruptionIsFree) {
  for (const char* kind : {"condition", "deleted", "vanished"}) {
    Scene scene(2);
    scene.Ended(0, 69);
    if (std::string(kind) == "condition") {
      PodRecord& pod = scene.Ended(1, 137);
      pod.disrupted = true;
      pod.true_conditions = {"DisruptionTarget"};
    } else if (std::string(kind) == "deleted") {
      scene.Ended(1, 75).deleting = true;
    }
    const Plan plan = scene.Decide();
    EXPECT_EQ(plan.status.restarts.total, 1) << kind;
    EXPECT_EQ(plan.status.restarts.charged, 0) << kind;
    ASSERT_TRUE(plan.status.first_failure) << kind;
    EXPECT_EQ(plan.status.first_failure->rank, 1) << kind;
  }
}

TEST(Restart, TheWaitForEvidenceEndsAlsoWhenAPodVanished) {
  Scene scene(2);
  scene.Pod(0);  // goes on as if nothing had happened; worker 1 is gone without a trace
  const Plan first = scene.Decide();
  EXPECT_EQ(first.status.attempt, 1);
  ASSERT_TRUE(first.status.first_failure);
  scene.status() = first.status;
  EXPECT_EQ(scene.Decide(After(kNow, 14)).status.attempt, 1);
  EXPECT_EQ(scene.Decide(After(kNow, 15)).status.attempt, 2);
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
  own.spec().restart.rules = {{"", {3}, "Restart", false}, {"", {3, 4}, "Fail", true}};
  own.Ended(0, 3);
  EXPECT_EQ(own.Decide().status.restarts.charged, 0);
  Scene other(1);
  other.spec().restart.rules = own.spec().restart.rules;
  other.Ended(0, 4);
  EXPECT_EQ(other.Decide().status.phase, api::kFailed);
}

TEST(Restart, ProgressMakesARestartFree) {
  Scene scene(1);
  scene.status().restarts = {.total = 3, .charged = 2, .durable_step = 100};
  scene.Ended(0, 70, 1, Message(120, 110));
  const Plan plan = scene.Decide();
  EXPECT_EQ(plan.status.restarts.total, 4);
  EXPECT_EQ(plan.status.restarts.charged, 2);
  EXPECT_EQ(plan.status.restarts.durable_step, 110);
  Scene again(1);
  again.status().restarts = plan.status.restarts;
  again.Ended(0, 70, 1, Message(120, 110));
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
  scene.status().failure_streak = api::FailureStreak{.reason = "InternalError", .step = 40, .count = 2};
  scene.Ended(0, 70, 1, Message(40, 30));
  const Plan plan = scene.Decide();
  EXPECT_EQ(plan.status.phase, api::kFailed);
  EXPECT_EQ(FindCondition(plan.status, kFailedCondition)->reason, "SameStepLimit");
  // Elsewhere it counts anew.
  Scene elsewhere(1);
  elsewhere.status().failure_streak = scene.status().failure_streak;
  elsewhere.Ended(0, 70, 1, Message(41, 30));
  EXPECT_EQ(elsewhere.Decide().status.failure_streak->count, 1);
}

TEST(Restart, KeepsTheEvidence) {
  Scene scene(2);
  scene.Ended(0, 69);
  scene.Ended(1, 70, 1, Message(40, 30)).node = "node-7";
  const Plan plan = scene.Decide();
  ASSERT_TRUE(plan.status.first_failure);
  const api::Failure& failure = *plan.status.first_failure;
  EXPECT_EQ(failure.rank, 1);
  EXPECT_EQ(failure.node, "node-7");
  EXPECT_EQ(failure.reason, "InternalError");
  EXPECT_EQ(failure.message, "it broke");
  EXPECT_EQ(failure.tail, std::vector<std::string>{"last line"});
  EXPECT_EQ(plan.status.checkpoint.step, 30);
}

TEST(Restart, AnyImagesLastWordsAreKept) {
  Scene scene(1);
  scene.Ended(0, 1, 1, "Traceback\n  line 3\nValueError: no\n");
  const Plan plan = scene.Decide();
  EXPECT_EQ(plan.status.first_failure->message, "ValueError: no");
  EXPECT_EQ(plan.status.first_failure->tail.size(), 3u);
  // Something that only looks like our message is not read as one.
  Scene liar(1);
  liar.Ended(0, 1, 1, R"({"v":1,"rank":"one","step":[],"tail":7})");
  EXPECT_EQ(liar.Decide().status.attempt, 2);
}

TEST(Restart, WaitsLongerEachTime) {
  Scene scene(1);
  api::JobStatus& status = scene.status();
  const std::pair<int64_t, double> waits[] = {{0, 0}, {1, 5}, {2, 10}, {3, 20}, {7, 300}};
  for (const auto& [charged, seconds] : waits) {
    status.restarts.charged = charged;
    EXPECT_DOUBLE_EQ(RestartWait(scene.spec(), status), seconds) << charged;
  }
  // Free restarts come at once, unless they repeat themselves.
  status.restarts.charged = 0;
  status.failure_streak = api::FailureStreak{.reason = "StoppedOnRequest", .step = 0, .count = 1};
  EXPECT_DOUBLE_EQ(RestartWait(scene.spec(), status), 0);
  status.failure_streak->count = 3;
  EXPECT_DOUBLE_EQ(RestartWait(scene.spec(), status), 10);
}

TEST(Restart, TheWaitIsHeld) {
  Scene scene(1, 2);
  scene.status().workers.created = 0;
  scene.status().restarts = {.total = 1, .charged = 1, .durable_step = 0};
  SetCondition(scene.status(), kRestartingCondition, true, "InternalError", "", After(kNow, -2), 1);
  const Plan early = scene.Decide();
  EXPECT_TRUE(early.creates.empty());
  EXPECT_NEAR(early.requeue_after_seconds.value_or(0), 3, 1e-9);
  EXPECT_EQ(scene.Decide(After(kNow, 3)).creates, std::vector<int64_t>{0});
}

}  // namespace
}  // namespace trainyard::reconcile
