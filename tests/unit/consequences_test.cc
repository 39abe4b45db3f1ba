#include "trainer/train/consequences.h"

#include <gtest/gtest.h>

#include <cmath>

#include "trainer/config/task_options.h"

namespace trainyard {
namespace {

class OneMetric : public TaskOptions {
 public:
  explicit OneMetric(Better better) : better_(better) {}
  void Declare(FieldTable&) override {}
  void Check(const Config&) const override {}
  std::string Describe() const override { return ""; }
  std::vector<Metric> Metrics() const override { return {{"m", better_}}; }

 private:
  Better better_;
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

}  // namespace
}  // namespace trainyard
