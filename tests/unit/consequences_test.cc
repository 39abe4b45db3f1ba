#include "trainer/train/consequences.h"

#include <gtest/gtest.h>

#include <cmath>
#include <functional>

#include "trainer/config/load.h"
#include "trainer/config/task_options.h"

namespace trainyard {
namespace {

class OneMetric : public TaskOptions {
 public:
  explicit OneMetric(Better better, int64_t windows = 1) : better_(better), windows_(windows) {}
  void Declare(FieldTable& table) override {
    table.Int("task.windows", windows_, 1, FieldClass::kSchedule, "What it is measured on.");
  }
  void Check(const Config&) const override {}
  std::string Describe() const override { return ""; }
  std::vector<Metric> Metrics() const override { return {{"m", better_}}; }
  std::vector<std::string> MeasuredWith() const override { return {"task.windows"}; }

 private:
  Better better_;
  int64_t windows_;
};

Config WatchesInEveryWay(Better better) {
  Config config;
  config.task.options = std::make_shared<OneMetric>(better);
  config.schedule = {.name = "plateau", .metric = "m", .factor = 0.1, .patience = 0};
  config.checkpoint.keep_best = "m";
  config.train.early_stop = {.metric = "m", .patience = 3};
  return config;
}

// A state that does not come back makes every later checkpoint a bad one.
TEST(ActOn, EveryStateThatItReachesComesBackFromACheckpoint) {
  const double values[] = {NAN, INFINITY, -INFINITY, 0, -0.5, 5e-324, 1.7e308};
  constexpr int kEvaluations = 4;
  for (const Better better : {Better::kLower, Better::kHigher}) {
    const Config config = WatchesInEveryWay(better);
    for (int sequence = 0; sequence < std::pow(std::size(values), kEvaluations); ++sequence) {
      TrainState train;
      for (int i = 0, rest = sequence; i < kEvaluations; ++i, rest /= static_cast<int>(std::size(values))) {
        const double value = values[static_cast<size_t>(rest) % std::size(values)];
        ++train.step;
        const Consequences consequences = ActOn({{"m", value}}, config, Stage{}, false, train);
        EXPECT_FALSE(std::isnan(value) && consequences.new_best);
        const nlohmann::json saved = train.ToJson();
        ASSERT_NO_THROW(EXPECT_EQ(TrainState::FromJson(saved).ToJson(), saved)) << saved;
      }
    }
  }
}

// Pre-training says nothing about the risk's metric: what it would have done to the run is done by no later stage
// either.
TEST(ActOn, AStageIsJudgedByItsOwnMetricsAlone) {
  const Config config = WatchesInEveryWay(Better::kLower);
  Stage other;
  other.metrics = {"another"};
  TrainState train;
  for (int i = 0; i < 9; ++i) {
    const Consequences consequences = ActOn({{"m", 9 - i}}, config, other, false, train);
    EXPECT_FALSE(consequences.new_best || consequences.stop_early);
  }
  EXPECT_EQ(train.ToJson(), TrainState().ToJson());
  other.metrics.emplace_back("m");
  EXPECT_TRUE(ActOn({{"m", 9}}, config, other, false, train).new_best);
}

// As every rate that is lowered without end.
TEST(ActOn, ARateOfNothingComesBack) {
  const Config config = WatchesInEveryWay(Better::kLower);
  TrainState train;
  for (int i = 0; i < 400; ++i) ActOn({{"m", 1}}, config, Stage{}, false, train);
  EXPECT_EQ(train.plateau.multiplier, 0);
  EXPECT_EQ(TrainState::FromJson(train.ToJson()).plateau.multiplier, 0);
}

// A state that every evaluation so far has gone into, saved under `config`.
TrainState Judged(const Config& config) {
  TrainState train;
  for (int i = 0; i < 4; ++i) {
    ++train.step;
    train.ended_early = ActOn({{"m", 5}}, config, Stage{}, false, train).stop_early;
  }
  train.evaluation_pending = true;
  return train;
}

// A loss of 5 would be the best value of an accuracy for ever.
TEST(ForgetOtherRules, WhatWasBestByAnotherMetricIsNotCompared) {
  const Config config = WatchesInEveryWay(Better::kLower);
  const TrainState judged = Judged(config);
  ASSERT_TRUE(judged.ended_early);
  const auto under = [&](const std::function<void(Config&)>& change) {
    Config now = config;
    change(now);
    TrainState train = judged;
    ForgetOtherRules(ToJson(config), now, train);
    return train;
  };
  EXPECT_EQ(under([](Config&) {}).ToJson(), judged.ToJson());

  const TrainState other_best = under([](Config& now) { now.checkpoint.keep_best = "n"; });
  EXPECT_TRUE(std::isinf(other_best.best) && other_best.best_step == 0);
  EXPECT_EQ(other_best.plateau.best, 5);
  EXPECT_TRUE(other_best.ended_early);

  const TrainState other_plateau = under([](Config& now) { now.schedule.metric = "n"; });
  EXPECT_TRUE(std::isinf(other_plateau.plateau.best) && other_plateau.plateau.bad == 0);
  EXPECT_EQ(other_plateau.plateau.multiplier, judged.plateau.multiplier) << "the rate stays where it is";
  EXPECT_EQ(other_plateau.best, 5);

  const TrainState other_stop = under([](Config& now) { now.train.early_stop.metric = "n"; });
  EXPECT_TRUE(std::isinf(other_stop.early_stop.best) && other_stop.early_stop.bad == 0);
  EXPECT_FALSE(other_stop.ended_early);
}

// Two easy patients, say, and then all of them: nothing would be the best any more.
TEST(ForgetOtherRules, WhatWasBestOnOtherSamplesIsNotCompared) {
  const Config config = WatchesInEveryWay(Better::kLower);
  Config now = config;
  now.task.options = std::make_shared<OneMetric>(Better::kLower, 2);
  for (const bool ended : {true, false}) {
    TrainState train = Judged(config);
    train.ended_early = ended;
    const TrainState judged = train;
    ForgetOtherRules(ToJson(config), now, train);
    EXPECT_TRUE(std::isinf(train.best) && train.best_step == 0);
    EXPECT_TRUE(std::isinf(train.plateau.best) && train.plateau.bad == 0);
    EXPECT_EQ(train.plateau.multiplier, judged.plateau.multiplier) << "the rate stays where it is";
    EXPECT_EQ(train.ended_early, ended);
    EXPECT_EQ(std::isinf(train.early_stop.best), !ended);
  }
}

// Of what ended it nothing is left to end it again; its final evaluation is none of the next steps'.
TEST(ForgetOtherRules, AnEarlyStopThatWouldNotBeMadeIsNone) {
  const Config config = WatchesInEveryWay(Better::kLower);
  const auto ended = [&](const EarlyStopConfig& early) {
    Config now = config;
    now.train.early_stop = early;
    TrainState train = Judged(config);
    ForgetOtherRules(ToJson(config), now, train);
    EXPECT_EQ(train.evaluation_pending, train.ended_early);
    return train.ended_early;
  };
  EXPECT_TRUE(ended({.metric = "m", .patience = 3}));
  EXPECT_TRUE(ended({.metric = "m", .patience = 2}));
  EXPECT_FALSE(ended({.metric = "m", .patience = 4}));
  EXPECT_FALSE(ended({.metric = "m", .patience = 3, .min_delta = 0.5}));
  EXPECT_FALSE(ended({}));
}

}  // namespace
}  // namespace trainyard
