#include "trainer/task/algorithm_distillation/sources.h"

#include <gtest/gtest.h>

#include <algorithm>

namespace trainyard::ad {
namespace {

// Mean return of the episodes [begin, end) over streams, as a share of the optimum.
double Share(const Histories& histories, const DarkRoom& room, int begin, int end) {
  double sum = 0;
  for (int64_t s = 0; s < histories.streams(); ++s) {
    for (int64_t t = begin * kHorizon; t < end * kHorizon; ++t)
      sum += histories.at(0, s)[static_cast<size_t>(t)].reward;
  }
  return sum / static_cast<double>(histories.streams()) / (end - begin) / room.OptimalReturn();
}

using Source = void (*)(const DarkRoom&, int64_t, uint64_t, Histories&, const StepsPlayed&);
const StepsPlayed kNobody = [](int64_t) {};

class SourceTest : public testing::TestWithParam<Source> {};
class SourceFormatTest : public testing::TestWithParam<Source> {};

TEST_P(SourceTest, LearnsTheTask) {
  const DarkRoom room{.goal = {5, 6}};
  Histories histories(1, 20, 1000);
  GetParam()(room, 0, 42, histories, kNobody);
  EXPECT_LT(Share(histories, room, 0, 3), 0.15);
  EXPECT_GT(Share(histories, room, 47, 50), 0.8);
  EXPECT_GT(Share(histories, room, 30, 35), Share(histories, room, 5, 10));
}

TEST_P(SourceFormatTest, IsAPureFunctionOfItsKey) {
  const DarkRoom room{.goal = {2, 3}};
  Histories a(2, 3, 160), b(2, 3, 160), other(2, 3, 160);
  GetParam()(room, 1, 7, a, kNobody);
  GetParam()(room, 1, 7, b, kNobody);
  GetParam()(room, 1, 8, other, kNobody);
  EXPECT_EQ(a.Fingerprint(), b.Fingerprint());
  EXPECT_NE(a.Fingerprint(), other.Fingerprint());
}

TEST_P(SourceFormatTest, StepsFollowTheRoom) {
  const DarkRoom room{.goal = {2, 3}};
  Histories histories(1, 4, 320);
  int64_t played = 0;
  GetParam()(room, 0, 7, histories, [&](int64_t steps) { played += steps; });
  EXPECT_EQ(played, 320);
  for (int64_t s = 0; s < 4; ++s) {
    Cell state = room.start;
    for (size_t t = 0; t < 320; ++t) {
      const Transition& step = histories.at(0, s)[t];
      EXPECT_EQ((Cell{step.row, step.column}), state);
      state = room.Step(state, step.action);
      EXPECT_EQ((Cell{step.next_row, step.next_column}), state) << "the true state, also at the end of an episode";
      EXPECT_EQ(step.reward, state == room.goal);
      EXPECT_EQ(step.done, t % kHorizon == kHorizon - 1);
      EXPECT_EQ(step.marker, t % 80 == 0 ? 1 : t % 80 == 79 ? 2 : 0);
      if (step.done) state = room.start;
    }
  }
}

// PPO shares one learner over 100 streams in the original; 20 learn more slowly, so it has its own.
INSTANTIATE_TEST_SUITE_P(Tabular, SourceTest, testing::Values(&SharedTableQ, &AdEpsilon));
INSTANTIATE_TEST_SUITE_P(Tabular, SourceFormatTest, testing::Values(&SharedTableQ, &AdEpsilon));

INSTANTIATE_TEST_SUITE_P(Ppo, SourceFormatTest, testing::Values(&Ppo));

// A task takes minutes in the largest size: whoever waits hears of every rollout.
TEST(PpoProgress, EveryRolloutIsTold) {
  Histories histories(1, 2, 200);
  std::vector<int64_t> told;
  Ppo(DarkRoom{.goal = {2, 3}}, 0, 42, histories, [&](int64_t steps) { told.push_back(steps); });
  EXPECT_EQ(told, (std::vector<int64_t>{80, 80, 40}));
}

// Some ten seconds; the sanitizers leave it out (Makefile).
TEST(PpoLearning, ReachesTheGoalWithManyStreams) {
  const DarkRoom room{.goal = {5, 6}};
  Histories histories(1, 60, 1040);
  Ppo(room, 0, 42, histories, kNobody);
  EXPECT_LT(Share(histories, room, 0, 3), 0.15);
  EXPECT_GT(Share(histories, room, 47, 52), 0.7);
}

}  // namespace
}  // namespace trainyard::ad
