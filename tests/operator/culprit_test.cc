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

TEST(Culprit, KeepsTheEvidence) {
  Scene scene(2);
  scene.Ended(0, 69);
  scene.Ended(1, 70, 1, LauncherMessage(40, 30)).node = "node-7";
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

TEST(Culprit, AnyImagesLastWordsAreKept) {
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

}  // namespace
}  // namespace trainyard::reconcile
