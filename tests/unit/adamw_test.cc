#include "trainer/optim/adamw.h"

#include <gtest/gtest.h>

#include <cmath>
#include <vector>

#include "trainer/base/error.h"
#include "trainer/device/host_device.h"
#include "trainer/parallel/flat_state.h"
#include "trainer/parallel/update_ranges.h"

namespace trainyard {
namespace {

FlatState Example() {
  FlatState state(FlatLayout({{"net.weight", {8, 8}, UnitId{0}, {Initial::Kind::kConstant, 1}},
                              {"net.bias", {8}, UnitId{0}, {Initial::Kind::kConstant, 1}}},
                             1),
                  {.precision = Precision::kFp32}, Host());
  state.Initialize(1);
  state.gradient.fill_(0);
  return state;
}

void Update(const OptimConfig& config, FlatState& state, int64_t step) {
  AdamW(config, UpdateRanges(config, state.layout()))
      .Step(HostMath(), state.UpdateBuffers(state.owned()[0]), 0, state.layout().total(), {.number = step, .lr = 0.1});
}

TEST(AdamW, OnlyMatricesDecay) {
  FlatState state = Example();
  OptimConfig config;
  config.decay = "matrices";
  config.weight_decay = 0.5;
  Update(config, state, 1);
  EXPECT_FLOAT_EQ(state.leaves()[0].flatten()[0].item<float>(), 0.95f);
  EXPECT_FLOAT_EQ(state.leaves()[1][0].item<float>(), 1);
}

TEST(AdamW, GroupsHaveTheirOwnRateAndDecay) {
  FlatState state = Example();
  OptimConfig config;
  config.weight_decay = 0.5;
  config.groups = {{"*.bias", 0.5, 1.0}};
  Update(config, state, 1);
  EXPECT_FLOAT_EQ(state.leaves()[0].flatten()[0].item<float>(), 0.95f);
  EXPECT_FLOAT_EQ(state.leaves()[1][0].item<float>(), 0.95f);  // 1 - 0.1 * 0.5 * 1
}

TEST(AdamW, APatternThatMatchesNothingIsAnError) {
  FlatState state = Example();
  OptimConfig config;
  config.groups = {{"nett.*", 1, {}}};
  EXPECT_THROW(RequireMatchingGroups(config, state.layout().parameters()), ConfigError);
  config.groups = {{"net.*", 1, {}}, {"*.bias", 1, {}}};
  EXPECT_THROW(RequireMatchingGroups(config, state.layout().parameters()), ConfigError) << "the first took all";
}

TEST(AdamW, PaddingStaysZero) {
  FlatState state = Example();
  state.gradient.narrow(0, 0, 64).fill_(3);
  for (int step = 1; step < 5; ++step) Update({}, state, step);
  EXPECT_EQ(state.master.narrow(0, 72, 56).abs().sum().item<float>(), 0);
}

// decay^n w_0 + (1 - decay) sum decay^(n - i) w_i.
TEST(AdamW, TheAverageIsTheClosedForm) {
  FlatState state(FlatLayout({{"w", {200}, UnitId{0}, {Initial::Kind::kNormal, 1}}}, 1), {.averages = true}, Host());
  state.Initialize(3);
  OptimConfig config;
  config.ema_decay = 0.75;
  const auto values = [&] { return std::vector<float>(Floats(state.master).begin(), Floats(state.master).end()); };
  std::vector<double> expected;
  for (const float w : values()) expected.push_back(w);
  for (int step = 1; step <= 20; ++step) {
    for (int64_t i = 0; i < 200; ++i) state.gradient[i] = std::sin(static_cast<double>(i * step));
    Update(config, state, step);
    const std::vector<float> now = values();
    for (size_t i = 0; i < expected.size(); ++i) expected[i] = 0.75 * expected[i] + 0.25 * now[i];
  }
  for (size_t i = 0; i < expected.size(); ++i)
    EXPECT_NEAR(Floats(state.average)[i], expected[i], 20 * 1.2e-7 * 3) << "20 roundings of values below 3";
}

TEST(ClipScale, IsThatOfClipGradNorm) {
  EXPECT_EQ(ClipScale(2, 1), static_cast<float>(1 / (2 + 1e-6)));
  EXPECT_EQ(ClipScale(0.5, 1), 1);
  EXPECT_EQ(ClipScale(5, 0), 1);
}

TEST(FlatState, Bf16IsACopyOfTheMaster) {
  FlatState state(FlatLayout({{"w", {4}, UnitId{0}, {Initial::Kind::kConstant, 0.3}},
                              {"norm", {4}, UnitId{0}, {Initial::Kind::kConstant, 0.3}, DType::kFloat32}},
                             1),
                  {.precision = Precision::kBf16}, Host());
  state.Initialize(1);
  EXPECT_EQ(state.leaves()[0].scalar_type(), at::kBFloat16);
  EXPECT_EQ(state.leaves()[1].scalar_type(), at::kFloat);
  EXPECT_NEAR(state.leaves()[0][0].item<float>(), 0.3, 0.3 / 256);
  state.master.fill_(2);
  state.RefreshOwned();
  EXPECT_EQ(state.leaves()[0][3].item<float>(), 2);
}

}  // namespace
}  // namespace trainyard
