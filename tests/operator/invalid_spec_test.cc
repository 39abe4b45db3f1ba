#include <gtest/gtest.h>

#include "operator/reconcile/conditions.h"
#include "operator/reconcile/policies.h"
#include "tests/operator/builders.h"

namespace trainyard::reconcile {
namespace {

TEST(InvalidSpec, CreatesNothingAndClears) {
  Scene scene(2, 0);
  scene.record().errors = {{api::FieldError::Kind::kInvalid, "spec.x", "1", "2"}};
  const Plan plan = scene.Decide();
  EXPECT_EQ(plan.status.phase, api::kInvalid);
  EXPECT_EQ(FindCondition(plan.status, kInvalidSpecCondition)->message, "spec.x: 1 is not allowed; allowed: 2");
  EXPECT_EQ(plan.status.attempt, 0);
  scene.status() = plan.status;
  scene.record().errors.clear();
  const Plan next = scene.Decide();
  EXPECT_EQ(next.status.attempt, 1);
  EXPECT_FALSE(IsTrue(next.status, kInvalidSpecCondition));
}

// It stands in the condition shortened, and is no news for that.
TEST(InvalidSpec, ALongVerdictIsToldOnce) {
  Scene scene(1, 0);
  scene.record().errors = {{api::FieldError::Kind::kInvalid, "spec.x", std::string(9000, 'x'), "2"}};
  const Plan plan = scene.Decide();
  EXPECT_EQ(plan.events.size(), 1u);
  scene.status() = plan.status;
  EXPECT_TRUE(scene.Decide().events.empty());
}

TEST(InvalidSpec, TheDryRunsVerdictStandsForItsGeneration) {
  Scene scene(1, 0);
  Observed observed = scene.Observe();
  observed.template_error = "unknown field \"spec.containrs\"";
  const Plan plan = MakePlan(observed, kNow);
  EXPECT_EQ(FindCondition(plan.status, kInvalidSpecCondition)->reason, "TemplateRefused");
  scene.status() = plan.status;
  EXPECT_EQ(scene.Decide().status.attempt, 0) << "the dry run is not repeated, and still holds";
  EXPECT_EQ(scene.Decide().requeue_after_seconds, kAskRefusedSeconds) << "it is, in a while";
  Observed again = scene.Observe();
  again.template_checked = true;
  EXPECT_EQ(MakePlan(again, kNow).status.attempt, 1) << "who refused it has changed his mind";
  scene.job().generation = 2;
  EXPECT_EQ(scene.Decide().status.attempt, 1);
}

// A bad edit of a running job, or one that only a newer operator calls bad.
class BadEdit : public testing::Test {
 protected:
  BadEdit() { scene_.record().errors = {{api::FieldError::Kind::kInvalid, "spec.restart.x", "1", "2"}}; }
  Scene scene_{2};
};

TEST_F(BadEdit, IsSaidAndFreezesNothing) {
  scene_.Run(2);
  const Plan plan = scene_.Decide();
  EXPECT_TRUE(IsTrue(plan.status, kInvalidSpecCondition));
  EXPECT_EQ(plan.status.phase, api::kRunning);
  EXPECT_EQ(plan.events.size(), 2u) << "that it is wrong, and that it runs";
}

TEST_F(BadEdit, SuccessGoesOn) {
  scene_.Ended(0, 0);
  scene_.Ended(1, 0);
  EXPECT_EQ(scene_.Decide().status.phase, api::kSucceeded);
}

TEST_F(BadEdit, SuspendGoesOn) {
  scene_.Run(2);
  scene_.spec().suspend = true;
  EXPECT_EQ(scene_.Decide().status.phase, api::kSuspending);
}

TEST_F(BadEdit, AResumedJobIsInvalidAndNotSuspended) {
  SetCondition(scene_.status(), kSuspendedCondition, true, "Requested", "spec.suspend is true", kNow, 1);
  scene_.status().phase = api::kSuspended;
  scene_.spec().suspend = true;
  EXPECT_EQ(scene_.Decide().status.phase, api::kSuspended);
  scene_.spec().suspend = false;
  const Plan plan = scene_.Decide();
  EXPECT_EQ(plan.status.phase, api::kInvalid);
  EXPECT_EQ(FindCondition(plan.status, kSuspendedCondition)->reason, "InvalidSpec");
  EXPECT_TRUE(IsTrue(plan.status, kSuspendedCondition)) << "no worker is left";
  scene_.status() = plan.status;
  EXPECT_TRUE(scene_.Decide().events.empty()) << "it is said once";
  scene_.record().errors.clear();
  EXPECT_EQ(scene_.Decide().status.phase, api::kPending);
}

TEST_F(BadEdit, AFailureEndsTheAttemptAndTheNextOneWaits) {
  scene_.Ended(0, 70);
  scene_.Ended(1, 69);
  const Plan plan = scene_.Decide();
  EXPECT_EQ(plan.status.attempt, 2);
  Scene next(2);
  next.record().errors = scene_.record().errors;
  next.status() = plan.status;
  EXPECT_TRUE(next.Decide(After(kNow, 60)).creates.empty());
  next.record().errors.clear();
  EXPECT_EQ(next.Decide(After(kNow, 60)).creates.size(), 2u);
}

TEST_F(BadEdit, TheWorkersOfTheAttemptStayItsOwn) {
  scene_.Run(2);
  scene_.spec().workers = 0;  // what a value that could not be read leaves
  const Plan plan = scene_.Decide();
  EXPECT_TRUE(plan.deletes.empty());
  EXPECT_EQ(plan.status.workers.ready, 2);
}

TEST(InvalidSpec, ATemplateThatCouldNotBeCheckedHoldsBackWhatIsNew) {
  Scene scene(1, 0);
  scene.status().observed_generation = 0;
  Observed observed = scene.Observe();
  observed.template_unknown = "a webhook fails";
  const Plan plan = MakePlan(observed, kNow);
  EXPECT_EQ(plan.status.attempt, 0);
  EXPECT_EQ(plan.status.phase, api::kPending);
  EXPECT_EQ(plan.status.observed_generation, 0) << "it is asked again";
  EXPECT_EQ(FindCondition(plan.status, kWorkersReadyCondition)->message, "a webhook fails");
  EXPECT_TRUE(plan.requeue_after_seconds);
  observed.job.spec.suspend = true;
  EXPECT_EQ(MakePlan(observed, kNow).status.phase, api::kSuspended);
}

TEST(InvalidSpec, ATemplateThatCouldNotBeCheckedIsSaidOnce) {
  for (const int64_t created : {0, 2}) {
    Scene scene(2);
    scene.status().workers.created = created;
    scene.status().observed_generation = 0;
    if (created > 0) scene.Run(2);
    const auto decide = [&](double seconds) {
      Observed observed = scene.Observe();
      observed.template_unknown = "a webhook fails";
      return MakePlan(observed, After(kNow, seconds));
    };
    scene.status() = decide(0).status;
    const Plan again = decide(10);
    EXPECT_TRUE(again.events.empty()) << created;
    EXPECT_TRUE(api::MergeDiff(api::StatusToJson(scene.status()), api::StatusToJson(again.status)).empty())
        << created << ": " << api::StatusToJson(again.status);
    EXPECT_EQ(IsTrue(again.status, kWorkersReadyCondition), created > 0);
  }
}

TEST(InvalidSpec, AMessageIsNeverLongerThanTheApiTakes) {
  Scene scene(1, 0);
  scene.record().errors.assign(512, {api::FieldError::Kind::kInvalid, std::string(2000, 'x'), "0", "1"});
  const std::string message = FindCondition(scene.Decide().status, kInvalidSpecCondition)->message;
  EXPECT_LT(message.size(), 32768u);
  scene.record().errors.assign(512, {api::FieldError::Kind::kInvalid, "spec.x", "0", "1"});
  EXPECT_TRUE(FindCondition(scene.Decide().status, kInvalidSpecCondition)->message.ends_with("\nand more"));
}

}  // namespace
}  // namespace trainyard::reconcile
