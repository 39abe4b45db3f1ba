#include "trainer/task/algorithm_distillation/dark_room.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>

#include "trainer/base/random.h"

namespace trainyard::ad {
namespace {

double Play(const DarkRoom& room, auto policy) {
  Cell state = room.start;
  double total = 0;
  for (int t = 0; t < kHorizon; ++t) {
    state = room.Step(state, policy(state));
    total += room.Reward(state);
  }
  return total;
}

TEST(DarkRoom, TheOptimalPolicyEarnsTheClosedForm) {
  for (const char* env : {"darkroom", "darkroom_permuted"}) {
    for (const DarkRoom& room : MakeTaskSet(env).tasks) {
      EXPECT_EQ(Play(room, [&](Cell s) { return room.OptimalAction(s); }), room.OptimalReturn());
    }
  }
}

TEST(DarkRoom, ThePublishedFigures) {
  const TaskSet set = MakeTaskSet("darkroom");
  ASSERT_EQ(set.train.size(), 73u);
  ASSERT_EQ(set.test.size(), 8u);
  const Cell published[] = {{4, 2}, {5, 6}, {6, 8}, {7, 2}, {3, 6}, {0, 5}, {5, 8}, {5, 4}};
  double optimum = 0, random = 0, all = 0;
  for (size_t i = 0; i < 8; ++i) {
    const DarkRoom& room = set.tasks[static_cast<size_t>(set.test[i])];
    EXPECT_EQ(room.goal, published[i]);
    optimum += room.OptimalReturn() / 8;
    random += RandomReturn(room) / 8;
  }
  for (const DarkRoom& room : set.tasks) all += room.OptimalReturn() / 81;
  EXPECT_EQ(optimum, 17.25);
  EXPECT_NEAR(random, 0.32, 0.01);
  EXPECT_NEAR(all, 16.54, 0.005);
}

TEST(DarkRoom, SplitsArePartitions) {
  for (const char* env : {"darkroom", "darkroom_permuted"}) {
    const TaskSet set = MakeTaskSet(env);
    std::vector<int> ids = set.train;
    ids.insert(ids.end(), set.test.begin(), set.test.end());
    std::sort(ids.begin(), ids.end());
    std::vector<int> expected(set.tasks.size());
    std::iota(expected.begin(), expected.end(), 0);
    EXPECT_EQ(ids, expected) << env;
  }
  EXPECT_EQ(MakeTaskSet("darkroom_permuted").tasks.size(), 120u);
}

TEST(DarkRoom, RandomReturnAgreesWithPlaying) {
  const DarkRoom room{.goal = {5, 4}};
  KeyedRandom random(1, "play");
  double sum = 0;
  constexpr int kEpisodes = 20000;
  for (int i = 0; i < kEpisodes; ++i)
    sum += Play(room, [&](Cell) { return static_cast<int>(random.Below(kNumActions)); });
  EXPECT_NEAR(sum / kEpisodes, RandomReturn(room), 0.06);  // five standard errors of about 0.012
}

TEST(DarkRoom, WallsClip) {
  const DarkRoom room{.goal = {0, 0}};
  EXPECT_EQ(room.Step({8, 8}, 0), (Cell{8, 8}));
  EXPECT_EQ(room.Step({0, 0}, 1), (Cell{0, 0}));
  EXPECT_EQ(room.Step({3, 3}, 4), (Cell{3, 3}));
}

}  // namespace
}  // namespace trainyard::ad
