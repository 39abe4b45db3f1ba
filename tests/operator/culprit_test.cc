#include "operator/reconcile/culprit.h"

#include <gtest/gtest.h>

#include "tests/operator/builders.h"

namespace trainyard::reconcile {
namespace {

struct OrderCase {
  const char* name;
  std::vector<int64_t> codes;  // of workers 0, 1, ...
  int64_t culprit;
};

TEST(Culprit, TheOrderOfCauses) {
  const OrderCase cases[] = {
      {"permanent before hang", {73, 64}, 1},  {"hang before memory", {71, 73}, 1},
      {"memory before internal", {70, 71}, 1}, {"a signal like internal", {139, 70}, 0},
      {"signal before stopped", {75, 137}, 1}, {"stopped before peer", {69, 75}, 1},
      {"unlisted like a signal", {137, 5}, 0}, {"storage like internal", {69, 74}, 1},
      {"the earliest of equals", {70, 70}, 0}, {"permanent before all", {75, 69, 70, 2}, 3},
  };
  for (const OrderCase& c : cases) {
    Scene scene(static_cast<int64_t>(c.codes.size()));
    for (size_t i = 0; i < c.codes.size(); ++i)
      scene.Ended(static_cast<int64_t>(i), c.codes[i], 5 - static_cast<double>(i));
    const Observed observed = scene.Observe();
    const auto rules = api::RulesInForce(observed.job.spec.restart);
    EXPECT_EQ(Culprit(FailedWorkers(observed, kNow), rules).worker, c.culprit) << c.name;
  }
}

int64_t CulpritOf(const Scene& scene) {
  return Culprit(FailedWorkers(scene.Observe(), kNow), api::DefaultRules()).worker;
}

TEST(Culprit, ThePeersOfAWorkerThatTheKernelEndedAreNotBlamed) {
  Scene scene(2);
  scene.Ended(0, 1, 10);  // in a foreign program the victim's own failure
  scene.Ended(1, 137, 5).end->reason = "OOMKilled";
  EXPECT_EQ(CulpritOf(scene), 1);
}

TEST(Culprit, APodThatSomeoneDeletedCountsFromThen) {
  Scene scene(2);
  scene.Ended(0, 1, 8);
  PodRecord& deleted = scene.Ended(1, 143, 2);
  deleted.deleting = true;
  deleted.deleted_at = After(kNow, -9);
  EXPECT_EQ(CulpritOf(scene), 1);
  deleted.deleted_at = After(kNow, -7);
  EXPECT_EQ(CulpritOf(scene), 0) << "worker 0 had failed before";
  deleted.deleted_at.reset();
  deleted.forced = true;
  EXPECT_EQ(CulpritOf(scene), 1) << "its kubelet takes it away: worker 0 may have failed after it was told to go";
}

// As `kubectl delete pods --field-selector status.phase=Failed` does, or a drain of its node, while its sidecar runs
// on.
TEST(Culprit, APermanentFailureStaysOneThoughItsPodIsCleared) {
  for (const bool drained : {false, true}) {
    Scene scene(2);
    scene.Pod(0);
    PodRecord& failed = scene.Ended(1, 65, 9);
    (drained ? failed.disrupted : failed.deleting) = true;
    (drained ? failed.disrupted_at : failed.deleted_at) = After(kNow, -5);
    EXPECT_EQ(scene.Decide(After(kNow, 15)).status.phase, api::kFailed) << drained;
    (drained ? failed.disrupted_at : failed.deleted_at) = After(kNow, -9);
    EXPECT_EQ(scene.Decide(After(kNow, 15)).status.phase, api::kRestarting) << "it may have ended since it was told to";
    (drained ? failed.disrupted_at : failed.deleted_at).reset();
    EXPECT_EQ(scene.Decide(After(kNow, 15)).status.phase, api::kRestarting) << "nobody knows which came first";
  }
  Scene other(1);
  PodRecord& killed = other.Ended(0, 137, 9);
  killed.disrupted = true;
  killed.disrupted_at = After(kNow, -5);
  EXPECT_EQ(other.Decide().status.restarts.charged, 0) << "its node's clock may be behind";
}

TEST(Culprit, AFailureThatWasSeenOutlivesItsPod) {
  Scene scene(2);
  scene.Pod(0);
  scene.Ended(1, 65, 2);
  const Plan wait = scene.Decide();
  EXPECT_EQ(wait.status.phase, api::kRestarting);
  Scene cleared(2);
  cleared.Ended(0, 69, 1);
  cleared.status() = wait.status;
  const Plan plan = cleared.Decide();
  EXPECT_EQ(plan.status.phase, api::kFailed);
  EXPECT_EQ(plan.status.last_failure->exit_code, 65);
  // Of one that was told to go nothing but that is known.
  for (const char* reason : {"PodDeleted", "DisruptionTarget"}) {
    cleared.status() = wait.status;
    cleared.status().last_failure->reason = reason;
    EXPECT_EQ(cleared.Decide().status.last_failure->reason, "PodVanished") << reason;
  }
}

struct WordsCase {
  const char* what;
  int64_t code;
  std::string message;  // the container's
  const char *reason, *says;
};

TEST(Culprit, OurWordsAreForOurTrainer) {
  const WordsCase cases[] = {
      {"ours", 65, LauncherMessage(4, 0, "BadData"), "BadData", "it broke"},
      {"a script's 2", 2, "usage: train.py\n", "ExitCode2", "usage: train.py"},
      {"killed: the last line is no cause", 137, "step 425/1200 loss 1.3\n", "Signal9", ""},
      {"255 is no signal", 255, "bye\n", "ExitCode255", "bye"},
      {"nor is 200", 200, "", "ExitCode200", ""},
      {"a real-time one", 192, "", "Signal64", ""},
      {"a shell's", 127, "sh: foo: not found\n", "CommandNotFound", "sh: foo: not found"},
  };
  for (const WordsCase& c : cases) {
    Scene scene(1);
    scene.Ended(0, c.code, 1, c.message);
    const api::Failure failure = *scene.Decide().status.last_failure;
    EXPECT_EQ(failure.reason, c.reason) << c.what;
    EXPECT_EQ(failure.message, c.says) << c.what;
    EXPECT_EQ(failure.signal.has_value(), std::string(c.reason).starts_with("Signal")) << c.what;
  }
}

TEST(Culprit, ADisruptionSaysWhose) {
  Scene scene(1);
  PodRecord& pod = scene.Ended(0, 137, 1, "step 4\n");
  pod.disrupted = true;
  pod.disruption = "PreemptionByScheduler: preempting to accommodate a higher priority pod";
  const api::Failure failure = *scene.Decide().status.last_failure;
  EXPECT_EQ(failure.reason, "DisruptionTarget");
  EXPECT_EQ(failure.message, pod.disruption);
  EXPECT_EQ(failure.tail, std::vector<std::string>{"step 4"});
}

TEST(Culprit, KeepsTheEvidence) {
  Scene scene(2);
  scene.Ended(0, 69);
  scene.Ended(1, 70, 1, LauncherMessage(40, 30)).node = "node-7";
  const Plan plan = scene.Decide();
  ASSERT_TRUE(plan.status.last_failure);
  const api::Failure& failure = *plan.status.last_failure;
  EXPECT_EQ(failure.rank, 1);
  EXPECT_EQ(failure.node, "node-7");
  EXPECT_EQ(failure.reason, "InternalError");
  EXPECT_EQ(failure.message, "it broke");
  EXPECT_EQ(failure.tail, std::vector<std::string>{"last line"});
  EXPECT_EQ(plan.status.checkpoint.step, 30);
}

TEST(Culprit, ALauncherThatNamesNoRankSpeaksOfItsWorker) {
  for (const char* rank : {"null", "-1", "\"x\""}) {
    Scene scene(3);
    scene.Ended(2, 70, 1, std::string(R"({"v": 1, "message": "it broke", "rank": )") + rank + "}");
    EXPECT_EQ(FailedWorkers(scene.Observe(), kNow).at(0).failure.rank, 2) << rank;
  }
}

TEST(Culprit, WhatALauncherSaysInSeveralLinesIsOne) {
  Scene scene(1);
  scene.Ended(0, 64, 1, R"({"v":1,"rank":0,"reason":"BadConfiguration","message":"optim.lr: no\ntrain.steps: no"})");
  EXPECT_EQ(scene.Decide().status.last_failure->message, "optim.lr: no; train.steps: no");
}

TEST(Culprit, AnyImagesLastWordsAreKept) {
  Scene scene(1);
  scene.Ended(0, 1, 1, "Traceback\n  line 3\nValueError: no\n");
  const Plan plan = scene.Decide();
  EXPECT_EQ(plan.status.last_failure->message, "ValueError: no");
  EXPECT_EQ(plan.status.last_failure->tail.size(), 3u);
  // Something that only looks like our message is not read as one.
  Scene liar(1);
  liar.Ended(0, 1, 1, R"({"v":1,"rank":"one","step":[],"tail":7})");
  EXPECT_EQ(liar.Decide().status.attempt, 2);
}

}  // namespace
}  // namespace trainyard::reconcile
