#include <gtest/gtest.h>

#include "operator/reconcile/conditions.h"
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

TEST(InvalidSpec, TheDryRunsVerdictStandsForItsGeneration) {
  Scene scene(1, 0);
  Observed observed = scene.Observe();
  observed.template_error = "unknown field \"spec.containrs\"";
  const Plan plan = MakePlan(observed, kNow);
  EXPECT_EQ(FindCondition(plan.status, kInvalidSpecCondition)->reason, "TemplateRefused");
  scene.status() = plan.status;
  EXPECT_EQ(scene.Decide().status.attempt, 0) << "the dry run is not repeated, and still holds";
  scene.job().generation = 2;
  EXPECT_EQ(scene.Decide().status.attempt, 1);
}

TEST(InvalidSpec, AFeatureThatIsNotThereSaysSo) {
  Json object = JobObject("job", 1);
  object["spec"]["scheduling"] = {{"gang", "volcano"}};
  const JobRecord record = JobFromApi(object);
  const Plan plan = MakePlan(SortPods(record, {}), kNow);
  EXPECT_EQ(FindCondition(plan.status, kInvalidSpecCondition)->reason, "NotYetSupported");
}

}  // namespace
}  // namespace trainyard::reconcile
