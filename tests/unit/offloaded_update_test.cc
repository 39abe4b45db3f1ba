#include "trainer/parallel/offloaded_update.h"

#include <ATen/ops/empty.h>
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <deque>
#include <functional>
#include <memory>

#include "trainer/device/host_device.h"
#include "trainer/parallel/update_ranges.h"

namespace trainyard {
namespace {

// Copies at the last moment, or at the first: all that may happen in between.
class CopiesAt : public TileCopies {
 public:
  explicit CopiesAt(bool late) : late_(late) {}
  at::Tensor HostMemory(int64_t elements, at::ScalarType type) override {
    at::Tensor memory = at::empty({elements}, type);
    std::memset(memory.mutable_data_ptr(), 0x7f, memory.nbytes());  // no number, or a huge one
    return memory;
  }
  Event Copy(const at::Tensor& from, const at::Tensor& to) override {
    jobs_.emplace_back(from, to);
    if (!late_) CopyNext();
    return ++submitted_;
  }
  void Wait(Event event) override {
    while (done_ < event) CopyNext();
  }

 private:
  void CopyNext() {
    auto [from, to] = jobs_.front();
    jobs_.pop_front();
    to.copy_(from);
    ++done_;
  }
  const bool late_;
  std::deque<std::pair<at::Tensor, at::Tensor>> jobs_;
  Event submitted_ = 0, done_ = 0;
};

FlatLayout Example() {
  return FlatLayout({{"a", {1000}, UnitId{0}, {Initial::Kind::kNormal, 1}},
                     {"b", {30, 20}, UnitId{0}, {Initial::Kind::kNormal, 1}},
                     {"norm", {100}, UnitId{0}, {Initial::Kind::kNormal, 1}, DType::kFloat32}},
                    2);
}

OptimConfig Config() {
  OptimConfig config;
  config.decay = "matrices";
  config.weight_decay = 0.3;
  config.ema_decay = 0.9;
  config.groups = {{"a", 0.5, {}}};
  return config;
}

void SetGradient(FlatState& state, int64_t step) {
  std::span<float> gradient = Floats(state.gradient);
  for (size_t i = 0; i < gradient.size(); ++i)
    gradient[i] = std::sin(static_cast<float>(i * static_cast<size_t>(step)));
}

// Parameters and state after three updates.
std::vector<at::Tensor> Updated(const FlatStateOptions& options,
                                const std::function<void(FlatState&, AdamWStep)>& update) {
  FlatState state(Example(), options, Host());
  state.Initialize(5);
  for (int64_t step = 1; step <= 3; ++step) {
    SetGradient(state, step);
    update(state, {.number = step, .lr = 0.1, .grad_scale = 0.7f});
  }
  std::vector<at::Tensor> all = {state.exp_avg, state.exp_avg_sq, state.average};
  for (const OwnedPiece& piece : state.owned()) all.push_back(state.MasterOf(piece).clone());
  for (size_t i = 0; i < 3; ++i) all.push_back(state.leaves()[i].detach().flatten());
  return all;
}

TEST(OffloadedUpdate, IsTheUpdateWhateverTheTilesAndWheneverCopiesHappen) {
  const AdamW adamw(Config(), UpdateRanges(Config(), Example()));
  for (const Precision precision : {Precision::kFp32, Precision::kBf16, Precision::kFp16}) {
    FlatStateOptions options{.precision = precision, .averages = true};
    const auto expected = Updated(options, [&](FlatState& state, const AdamWStep& step) {
      adamw.Step(HostMath(), state.UpdateBuffers(state.owned()[0]), 0, state.layout().total(), step);
      state.RefreshOwned();
    });
    options.offload = true;
    for (const int64_t tile_bytes : {1, 512, 4096, 1 << 20}) {
      for (const int copies : {0, 1, 2}) {
        SCOPED_TRACE(testing::Message() << "tiles of " << tile_bytes << ", copies " << copies);
        const auto found = Updated(options, [&](FlatState& state, const AdamWStep& step) {
          OffloadedUpdate offloaded(state, copies < 2 ? std::make_unique<CopiesAt>(copies == 1) : MakeHostCopies(),
                                    tile_bytes);
          offloaded.Run(adamw, step, [](size_t) {});
          state.RefreshWide();
        });
        ASSERT_EQ(found.size(), expected.size());
        for (size_t i = 0; i < found.size(); ++i) EXPECT_TRUE(found[i].equal(expected[i])) << i;
      }
    }
  }
}

// Whoever is told of a piece may send it on: all of it is there, and each is told once, in order.
TEST(OffloadedUpdate, APieceIsToldWhenAllOfItIsBack) {
  const FlatLayout layout = Example();
  const std::vector<Range> shard = {{0, 512}, {640, 1152}};
  const AdamW adamw(Config(), UpdateRanges(Config(), layout));
  FlatState state(layout, {.precision = Precision::kBf16, .shard = shard, .averages = true, .offload = true}, Host());
  state.Initialize(5);
  SetGradient(state, 1);
  OffloadedUpdate offloaded(state, std::make_unique<CopiesAt>(true), 512);
  std::vector<size_t> told;
  offloaded.Run(adamw, {.number = 1, .lr = 0.1, .grad_scale = 1}, [&](size_t piece) {
    told.push_back(piece);
    const OwnedPiece& owned = state.owned()[piece];
    EXPECT_TRUE(state.ComputeOf(owned).equal(state.MasterOf(owned).to(at::kBFloat16))) << piece;
  });
  EXPECT_EQ(told, (std::vector<size_t>{0, 1}));
}

}  // namespace
}  // namespace trainyard
