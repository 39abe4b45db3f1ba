#include "trainer/metrics/throughput.h"

#include <gtest/gtest.h>

namespace trainyard {
namespace {

TEST(Throughput, UnknownBeforeTheFirstStep) { EXPECT_FALSE(Throughput(448).steps_per_second().has_value()); }

// A first step of 4 s, then ten a second.
TEST(Throughput, TheFirstStepCountsUntilThereIsASecond) {
  Throughput throughput(448);
  throughput.AddStep(449, 4);
  EXPECT_DOUBLE_EQ(*throughput.steps_per_second(), 0.25);
  for (int i = 1; i <= 100; ++i) {
    throughput.AddStep(449 + i, 4 + 0.1 * i);
    EXPECT_NEAR(*throughput.steps_per_second(), 10, 1e-9) << "step " << i;
  }
}

TEST(Throughput, FollowsASpeedThatChanges) {
  Throughput throughput(0);
  double now = 0;
  int64_t done = 0;
  for (int i = 0; i < 1000; ++i) throughput.AddStep(++done, now += 0.01);
  EXPECT_NEAR(*throughput.steps_per_second(), 100, 1e-6);
  for (int i = 0; i < 11; ++i) throughput.AddStep(++done, now += 0.5);
  EXPECT_NEAR(*throughput.steps_per_second(), 2, 1e-6);
  throughput.AddStep(++done, now += 60);  // One step alone is longer than the window.
  EXPECT_NEAR(*throughput.steps_per_second(), 1 / 60.0, 1e-9);
}

TEST(Throughput, FewMarksForManySteps) {
  Throughput throughput(0);
  for (int i = 1; i <= 100000; ++i) throughput.AddStep(i, 1e-5 * i);
  EXPECT_NEAR(*throughput.steps_per_second(), 1e5, 1);
}

}  // namespace
}  // namespace trainyard
