#include "trainer/task/algorithm_distillation/play_returns.h"

#include <gtest/gtest.h>

#include <cmath>

#include "trainer/base/random.h"

namespace trainyard::ad {
namespace {

TEST(PlayReturns, EachPlayIsOneValue) {
  // Two goals, two plays, three episodes.
  const std::vector<double> values = {1, 2, 3, 3, 4, 5, /* second goal */ 0, 0, 0, 6, 6, 6};
  const PlayReturns returns(values, 2, 2, 3);
  EXPECT_EQ(returns.last(), 3);
  EXPECT_DOUBLE_EQ(returns.LastOfGoal(0).mean, 3);             // of 2 and 4
  EXPECT_DOUBLE_EQ(*returns.LastOfGoal(0).standard_error, 1);  // sd sqrt 2 over sqrt 2
  EXPECT_DOUBLE_EQ(returns.LastOfGoal(1).mean, 3);
  EXPECT_DOUBLE_EQ(*returns.LastOfGoal(1).standard_error, 3);
  EXPECT_DOUBLE_EQ(returns.LastOverGoals().mean, 3);
  EXPECT_DOUBLE_EQ(*returns.LastOverGoals().standard_error, 2);  // of 1 and 5
  EXPECT_EQ(returns.Curve(), (std::vector<double>{2.5, 3, 3.5}));
}

TEST(PlayReturns, TenEpisodesAtTheEndCount) {
  std::vector<double> values(12, 5);
  values[0] = values[1] = 100;
  const PlayReturns returns(values, 1, 1, 12);
  EXPECT_EQ(returns.last(), 10);
  EXPECT_DOUBLE_EQ(returns.LastOfGoal(0).mean, 5);
  EXPECT_FALSE(returns.LastOfGoal(0).half95) << "one play says nothing about the spread";
}

// What a policy that learns in context does: a play finds the goal early, late or never, which all its
// episodes share, and each episode has a little noise of its own. The true mean is known.
TEST(PlayReturns, IntervalsCoverTheTrueMeanInNinetyFivePercent) {
  constexpr int kTrials = 4000, kGoals = 3, kPlays = 16, kEpisodes = 12;
  constexpr uint64_t kSeed = 20;
  const double mean_of[kGoals] = {2, 9, 16}, mean = 9;
  KeyedRandom random(kSeed, "coverage");
  int goal = 0, over_goals = 0;
  for (int trial = 0; trial < kTrials; ++trial) {
    std::vector<double> values;
    for (double center : mean_of) {
      for (int play = 0; play < kPlays; ++play) {
        const double shared = center + 2.0 * random.Normal();
        for (int e = 0; e < kEpisodes; ++e) values.push_back(shared + 0.8 * random.Normal());
      }
    }
    const PlayReturns returns(values, kGoals, kPlays, kEpisodes);
    const MeanEstimate first = returns.LastOfGoal(0), all = returns.LastOverGoals();
    goal += std::abs(first.mean - mean_of[0]) <= *first.half95;
    over_goals += std::abs(all.mean - mean) <= *all.half95;
  }
  // Four standard deviations of a binomial share: 0.014.
  const double allowed = 4 * std::sqrt(0.95 * 0.05 / kTrials);
  EXPECT_NEAR(static_cast<double>(goal) / kTrials, 0.95, allowed) << "seed " << kSeed;
  EXPECT_NEAR(static_cast<double>(over_goals) / kTrials, 0.95, allowed) << "seed " << kSeed;
}

}  // namespace
}  // namespace trainyard::ad
