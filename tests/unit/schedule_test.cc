#include "trainer/optim/schedule.h"

#include <gtest/gtest.h>

#include <cmath>

namespace trainyard {
namespace {

TEST(LearningRate, CosineWithWarmUp) {
  const ScheduleConfig cosine{.name = "cosine", .warmup = 10, .min_lr = 0.1};
  EXPECT_EQ(LearningRate(cosine, 1, 0, 110), 0);
  EXPECT_EQ(LearningRate(cosine, 1, 5, 110), 0.5);
  EXPECT_EQ(LearningRate(cosine, 1, 10, 110), 1);
  EXPECT_NEAR(LearningRate(cosine, 1, 60, 110), 0.55, 1e-12);  // halfway
  EXPECT_NEAR(LearningRate(cosine, 1, 110, 110), 0.1, 1e-12);  // the end
}

TEST(LearningRate, NeverRisesAfterItsPeak) {
  // The guide's code stepped the schedule once per process, so the cosine ended early and rose again.
  for (const char* name : {"cosine", "linear", "onecycle"}) {
    const ScheduleConfig schedule{.name = name, .warmup = std::string(name) == "onecycle" ? 0 : 20};
    double before = INFINITY;
    for (int64_t step = 60; step < 200; ++step) {
      const double lr = LearningRate(schedule, 1, step, 200);
      EXPECT_LE(lr, before) << name << " " << step;
      before = lr;
    }
  }
}

TEST(LearningRate, Linear) {
  const ScheduleConfig linear{.name = "linear", .warmup = 10};
  EXPECT_EQ(LearningRate(linear, 2, 60, 110), 1);
  EXPECT_EQ(LearningRate(linear, 2, 110, 110), 0);
}

// Values of torch.optim.lr_scheduler.OneCycleLR(max_lr=1, total_steps=10, pct_start=0.3), torch 2.11.
TEST(LearningRate, OneCycleIsTorchs) {
  const double expected[] = {0.04,           0.52,           1.0,           0.950484632013,  0.81174565395,
                             0.611262021936, 0.388741978064, 0.18825834605, 0.0495193679865, 4e-06};
  const ScheduleConfig schedule{.name = "onecycle"};
  for (int64_t step = 0; step < 10; ++step)
    EXPECT_NEAR(LearningRate(schedule, 1, step, 10), expected[step], 1e-10) << step;
}

TEST(Plateau, LowersAfterPatience) {
  const ScheduleConfig schedule{.name = "plateau", .factor = 0.5, .patience = 2};
  Plateau plateau;
  for (double metric : {1.0, 0.9, 0.9, 0.9}) plateau.Update(schedule, metric);
  EXPECT_EQ(plateau.multiplier, 1);
  plateau.Update(schedule, 0.9);
  EXPECT_EQ(plateau.multiplier, 0.5);
}

// torch.optim.lr_scheduler.ReduceLROnPlateau counts them as bad, too.
TEST(Plateau, WhatIsNoNumberHasNotImproved) {
  const ScheduleConfig schedule{.name = "plateau", .factor = 0.5, .patience = 1};
  Plateau plateau;
  for (double metric : {double{NAN}, double{INFINITY}}) plateau.Update(schedule, metric);
  EXPECT_EQ(plateau.best, INFINITY);
  EXPECT_EQ(plateau.multiplier, 0.5);
  for (double metric : {1.0, double{NAN}}) plateau.Update(schedule, metric);
  EXPECT_EQ(plateau.best, 1);
  EXPECT_EQ(plateau.bad, 1);
  for (double metric : {-double{INFINITY}, 1.0}) plateau.Update(schedule, metric);
  EXPECT_EQ(plateau.best, -INFINITY) << "nothing is better";
}

TEST(EarlyStop, EndsAfterPatience) {
  EarlyStop stop;
  const EarlyStopConfig config{.metric = "m", .patience = 2, .min_delta = 0.1};
  EXPECT_FALSE(stop.Update(config, 1.0));
  EXPECT_FALSE(stop.Update(config, 0.95));  // less than min_delta better
  EXPECT_TRUE(stop.Update(config, 0.95));
}

TEST(ScaledRate, FollowsThePolicy) {
  OptimConfig optim;
  optim.lr = 1e-4;
  EXPECT_EQ(ScaledRate(optim, 4), 1e-4);
  optim.lr_scaling = "linear";
  EXPECT_EQ(ScaledRate(optim, 4), 4e-4);
  optim.lr_scaling = "sqrt";
  EXPECT_EQ(ScaledRate(optim, 4), 2e-4);
}

// A step past the end, of a stage that was made shorter, say: a rate below zero would climb, and one that rises is
// none.
TEST(LearningRate, StaysWhereItEndedPastItsEnd) {
  for (const char* name : {"cosine", "linear", "onecycle"}) {
    const ScheduleConfig schedule{.name = name, .warmup = 2, .min_lr = 0.01};
    const double end = LearningRate(schedule, 1, name == std::string("onecycle") ? 9 : 10, 10);
    for (const int64_t step : {10, 15, 19, 1000}) EXPECT_EQ(LearningRate(schedule, 1, step, 10), end) << name;
  }
}

}  // namespace
}  // namespace trainyard
