// What every device must do. The host's processors always; a GPU where the plug-in sees one:
//   build/release/bin/device_test --gtest_filter='*Cuda*'
#include "trainer/device/device.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/from_blob.h>
#include <ATen/ops/randn.h>
#include <ATen/ops/zeros.h>
#include <ATen/ops/zeros_like.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <thread>
#include <vector>

#include "tests/unit/collectives_contract.h"
#include "trainer/base/error.h"
#include "trainer/device/host_device.h"
#include "trainer/device/plugin.h"
#include "trainer/model/device_ops.h"

namespace trainyard {
namespace {

class DeviceTest : public testing::TestWithParam<const char*> {
 protected:
  void SetUp() override {
    if (GetParam() == std::string("Host")) {
      device = MakeHostDevice();
    } else if (const Plugin& plugin = CudaPlugin(); plugin.devices > 0) {
      device.reset(plugin.table->open(0));
    } else {
      GTEST_SKIP() << "no GPU: " << Describe(plugin);
    }
  }
  at::Tensor There(const at::Tensor& host) { return device->Upload(host); }
  FlatMath& math() { return device->math(); }

  std::unique_ptr<Device> device;
};

TEST_P(DeviceTest, SaysWhatItIs) {
  EXPECT_FALSE(device->name().empty());
  EXPECT_GT(device->memory().total, 0);
  EXPECT_LE(device->memory().free, device->memory().total);
}

TEST_P(DeviceTest, AnUploadIsACopyInItsOrder) {
  at::Tensor host = at::arange(1000, at::kLong);
  std::vector<at::Tensor> copies;
  for (int i = 0; i < 20; ++i) copies.push_back(There(host + i) * 2);
  device->Synchronize();
  for (int i = 0; i < 20; ++i) EXPECT_TRUE(copies[static_cast<size_t>(i)].cpu().equal((host + i) * 2));
}

// Sizes of none, one and several of the pieces that it goes in, by two threads at once, while the device computes.
TEST_P(DeviceTest, ADownloadIsTheWholeTensor) {
  constexpr int64_t kPiece = 2 << 20;  // values
  const at::Tensor busy = There(at::randn({1000, 1000}));
  const auto take = [&](uint64_t seed) {
    for (const int64_t size : {int64_t{0}, int64_t{1}, kPiece, kPiece + 1, 5 * kPiece - 3}) {
      const at::Tensor host = at::arange(size, at::kFloat) + static_cast<double>(seed);
      const at::Tensor there = device->Upload(host);
      device->Synchronize();
      std::vector<float> to(static_cast<size_t>(size), -7);
      for (int i = 0; i < 3; ++i) busy.matmul(busy);
      device->Download(there, to.data());
      EXPECT_TRUE(at::from_blob(to.data(), {size}, at::kFloat).equal(host)) << size;
    }
  };
  std::thread other([&] { take(3); });
  take(0);
  other.join();
}

TEST_P(DeviceTest, RoundsToTheNearestAndAddsExactly) {
  const at::Tensor x = at::randn({10'007}) * 100;
  for (const at::ScalarType type : {at::kFloat, at::kBFloat16, at::kHalf}) {
    SCOPED_TRACE(c10::toString(type));
    const at::Tensor from = There(x), to = at::empty({x.numel()}, from.options().dtype(type));
    math().Round(from.data_ptr<float>(), to.data_ptr(), type, x.numel());
    EXPECT_TRUE(to.cpu().equal(x.to(type)));
    const at::Tensor sum = There(x.clone());
    math().Add(to.data_ptr(), type, sum.data_ptr<float>(), x.numel());
    EXPECT_TRUE(sum.cpu().equal(x + x.to(type).to(at::kFloat)));
    if (type == at::kFloat) continue;
    math().Widen(to.data_ptr(), type, sum.data_ptr<float>(), x.numel());
    EXPECT_TRUE(sum.cpu().equal(x.to(type).to(at::kFloat)));
  }
}

// 1e-15 of the largest: float64 sums of squares in another order. The same blocks in other calls: the same bits.
TEST_P(DeviceTest, SumsSquaresByBlocks) {
  constexpr int64_t kBlocks = 5'003;
  const at::Tensor x = at::randn({kBlocks * 64}), there = There(x);
  const at::Tensor sums = at::zeros({kBlocks}, there.options().dtype(at::kDouble)), cut = at::zeros_like(sums);
  math().SumBlocks(there.data_ptr<float>(), sums.data_ptr<double>(), kBlocks);
  const at::Tensor expected = x.to(at::kDouble).square().view({kBlocks, 64}).sum(1);
  EXPECT_LT((sums.cpu() - expected).abs().max().item<double>(), 1e-15 * 64 * expected.max().item<double>());
  for (int64_t begin = 0, n = 1; begin < kBlocks; begin += n, n = std::min(3 * n, kBlocks - begin))
    math().SumBlocks(there.data_ptr<float>() + begin * 64, cut.data_ptr<double>() + begin,
                     std::min(n, kBlocks - begin));
  EXPECT_TRUE(cut.equal(sums));
  const double norm = math().NormOf(sums.data_ptr<double>(), kBlocks);
  EXPECT_NEAR(norm, std::sqrt(expected.sum().item<double>()), 1e-12 * norm);
  EXPECT_EQ(norm, math().NormOf(cut.data_ptr<double>(), kBlocks));
  at::Tensor bad = x.clone();
  bad[77] = std::numeric_limits<float>::infinity();
  const at::Tensor bad_there = There(bad);
  math().SumBlocks(bad_there.data_ptr<float>(), sums.data_ptr<double>(), kBlocks);
  EXPECT_FALSE(std::isfinite(math().NormOf(sums.data_ptr<double>(), kBlocks)));
}

// Against torch.optim.AdamW's formula in float64, and the moving average of what it makes; some float32 roundings
// of values of order one, and of the second moment's few: its rate, as 1 - beta2 of a beta2 in float32, would be off by
// 1.3e-5.
TEST_P(DeviceTest, UpdatesAsAdamWDoes) {
  constexpr int64_t kN = 64 * 33;
  const double lr = 1e-2, beta1 = 0.9, beta2 = 0.999, eps = 1e-8, decay = 0.1, scale = 0.5, rate = 0.3;
  at::Tensor p = at::randn({kN}), m = at::zeros({kN}), v = at::zeros({kN});
  const at::Tensor param = There(p.clone()), exp_avg = There(m.clone()), exp_avg_sq = There(v.clone());
  const at::Tensor average = There(p.clone());
  at::Tensor wide_p = p.to(at::kDouble), wide_average = wide_p, wide_m = m.to(at::kDouble), wide_v = v.to(at::kDouble);
  for (int step = 1; step <= 5; ++step) {
    const at::Tensor g = at::randn({kN}), grad = There(g);
    const double correction1 = 1 - std::pow(beta1, step), correction2 = std::sqrt(1 - std::pow(beta2, step));
    kernels::AdamWArgs args{};
    args.param = param.data_ptr<float>();
    args.exp_avg = exp_avg.data_ptr<float>();
    args.exp_avg_sq = exp_avg_sq.data_ptr<float>();
    args.average = average.data_ptr<float>();
    args.average_rate = static_cast<float>(rate);
    args.grad = grad.data_ptr<float>();
    args.grad_scale = static_cast<float>(scale);
    args.lr = static_cast<float>(lr);
    args.exp_avg_rate = static_cast<float>(1 - beta1);
    args.beta2 = static_cast<float>(beta2);
    args.exp_avg_sq_rate = static_cast<float>(1 - beta2);
    args.eps = static_cast<float>(eps);
    args.weight_decay = static_cast<float>(decay);
    args.bias_correction1 = static_cast<float>(correction1);
    args.bias_correction2_sqrt = static_cast<float>(correction2);
    math().AdamW(args, 0, 64 * 7);
    math().AdamW(args, 64 * 7, kN);
    const at::Tensor wide_g = g.to(at::kDouble) * scale;
    wide_m = wide_m * beta1 + wide_g * (1 - beta1);
    wide_v = wide_v * beta2 + wide_g.square() * (1 - beta2);
    wide_p = wide_p * (1 - lr * decay) - lr / correction1 * wide_m / (wide_v.sqrt() / correction2 + eps);
    wide_average = wide_average + rate * (wide_p - wide_average);
    device->Synchronize();
  }
  EXPECT_LT((average.cpu() - wide_average).abs().max().item<double>(), 1e-5 * wide_p.abs().max().item<double>());
  EXPECT_LT((param.cpu() - wide_p).abs().max().item<double>(), 1e-5 * wide_p.abs().max().item<double>());
  EXPECT_LT((exp_avg_sq.cpu() - wide_v).abs().max().item<double>(), 1e-6 * wide_v.abs().max().item<double>());
}

// A world of one, which is all that one GPU allows: NCCL refuses two ranks on one.
TEST_P(DeviceTest, ConnectsAWorldOfOne) {
  const auto alone = device->Connect(std::make_shared<MemoryStore>(), {});
  const auto settle = [&] { device->Synchronize(); };
  contract::SumsGathersAndBroadcasts(*alone, settle, device->device());
  contract::AnySizeAndTypeIsSummedAndSharedOut(*alone, settle, device->device());
  contract::CollectivesEndInTheirOrder(*alone, settle, device->device());
}

TEST_P(DeviceTest, WhatIsDroppedFollowsFromTheKey) {
  const at::TensorOptions like = at::TensorOptions(at::kFloat).device(device->device());
  const at::Tensor mask = KeepMask({100, 100}, like, {.key = 5, .p = 0.25});
  EXPECT_TRUE(mask.equal(KeepMask({100, 100}, like, {.key = 5, .p = 0.25})));
  EXPECT_FALSE(mask.equal(KeepMask({100, 100}, like, {.key = 6, .p = 0.25})));
  EXPECT_NEAR(mask.mean().item<double>(), 1, 0.02);  // 3 standard deviations of 10,000 draws
}

INSTANTIATE_TEST_SUITE_P(Devices, DeviceTest, testing::Values("Host", "Cuda"),
                         [](const auto& which) { return std::string(which.param); });

}  // namespace
}  // namespace trainyard
