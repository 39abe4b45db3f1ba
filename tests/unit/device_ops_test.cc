// What devices compute against the host's kernels: with tensors of the host, and where the plug-in sees a GPU, of that:
//   build/release/bin/model_test --gtest_filter='*Cuda*'
#include "trainer/model/device_ops.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/eye.h>
#include <ATen/ops/full.h>
#include <ATen/ops/randint.h>
#include <ATen/ops/randn.h>
#include <gtest/gtest.h>
#include <torch/csrc/autograd/autograd.h>

#include <functional>
#include <limits>
#include <memory>
#include <string>
#include <vector>

#include "trainer/device/plugin.h"
#include "trainer/model/attention.h"
#include "trainer/model/convolve.h"
#include "trainer/model/device_rows.h"
#include "trainer/model/fused_ops.h"
#include "trainer/model/product.h"
#include "trainer/model/token_loss.h"

namespace trainyard {
namespace {

class DeviceOps : public testing::TestWithParam<const char*> {
 protected:
  void SetUp() override {
    if (GetParam() == std::string("Host")) return;
    const Plugin& plugin = CudaPlugin();
    if (plugin.devices == 0) GTEST_SKIP() << "no GPU: " << Describe(plugin);
    device.reset(plugin.table->open(0));
    where = device->device();
  }
  std::unique_ptr<Device> device;
  at::Device where = at::kCPU;
};

using Operation = std::function<at::Tensor(const std::vector<at::Tensor>&)>;

// Values and gradients; 1e-5 of the largest value: sums in another order.
void ExpectAlikeOn(at::Device where, const Operation& host, const Operation& device,
                   const std::vector<at::Tensor>& inputs) {
  std::vector<at::Tensor> leaves[2], gradients[2];
  at::Tensor values[2];
  at::Tensor weights;
  for (const int i : {0, 1}) {
    for (const at::Tensor& input : inputs)
      leaves[i].push_back(input.clone().to(i == 0 ? at::Device(at::kCPU) : where).requires_grad_(true));
    values[i] = (i == 0 ? host : device)(leaves[i]);
    if (i == 0) weights = at::randn(values[0].sizes());
    gradients[i] = torch::autograd::grad({(values[i] * weights.to(values[i].device())).sum()}, leaves[i]);
    for (at::Tensor& gradient : gradients[i]) gradient = gradient.cpu();
    values[i] = values[i].detach().cpu();
  }
  const auto close = [](const at::Tensor& a, const at::Tensor& b) {
    ASSERT_EQ(a.sizes(), b.sizes());
    if (a.numel() == 0) return;
    EXPECT_LT(((a - b).abs().max() / b.abs().max().clamp_min(0.1)).item<double>(), 1e-5);
  };
  close(values[1], values[0]);
  for (size_t i = 0; i < inputs.size(); ++i) {
    SCOPED_TRACE(testing::Message() << "gradient " << i);
    close(gradients[1][i], gradients[0][i]);
  }
}

TEST_P(DeviceOps, GiveWhatTheHostsKernelsGive) {
  const auto ExpectAlike = [&](const Operation& host, const Operation& there, const std::vector<at::Tensor>& inputs) {
    ExpectAlikeOn(where, host, there, inputs);
  };
  constexpr int64_t kB = 3, kC = 7, kQ = 4, kH = 2, kD = 16;
  const at::Tensor visible = at::randint(0, kC + 1, {kB, kQ}, at::kInt), nobody = at::empty({kB, 0}, at::kInt),
                   visible_there = visible.to(where), nobody_there = nobody.to(where);
  const DropoutDraw none;
  {
    SCOPED_TRACE("attention of context and queries");
    ExpectAlike([&](const auto& in) { return PrefixAttention(in[0], visible, kH, none); },
                [&](const auto& in) { return device_ops::PrefixAttention(in[0], visible_there, kH, none); },
                {at::randn({kB, kC + kQ, 3 * kD})});
  }
  {
    SCOPED_TRACE("causal attention");
    ExpectAlike([&](const auto& in) { return PrefixAttention(in[0], nobody, kH, none); },
                [&](const auto& in) { return device_ops::PrefixAttention(in[0], nobody_there, kH, none); },
                {at::randn({kB, kC, 3 * kD})});
  }
  {
    SCOPED_TRACE("attention of queries alone");
    ExpectAlike(
        [&](const auto& in) { return PrefixAttentionOfQueries(in[0], in[1], visible, kH, none); },
        [&](const auto& in) { return device_ops::PrefixAttentionOfQueries(in[0], in[1], visible_there, kH, none); },
        {at::randn({kB, kQ, kD}), at::randn({kB, kC + kQ, 2 * kD})});
  }
  {
    SCOPED_TRACE("attention to everything");
    ExpectAlike([&](const auto& in) { return SelfAttention(in[0], kH, none); },
                [&](const auto& in) { return device_ops::SelfAttention(in[0], kH, none); },
                {at::randn({kB, kC, 3 * kD})});
    ExpectAlike([&](const auto& in) { return CrossAttention(in[0], in[1], kH, none); },
                [&](const auto& in) { return device_ops::CrossAttention(in[0], in[1], kH, none); },
                {at::randn({kB, kQ, kD}), at::randn({kB, kC, 2 * kD})});
  }
  {
    SCOPED_TRACE("norms");
    ExpectAlike([&](const auto& in) { return DropoutAddNorm(in[0], in[1], in[2], in[3], none); },
                [&](const auto& in) { return device_ops::DropoutAddNorm(in[0], in[1], in[2], in[3], none); },
                {at::randn({kB, kC, kD}), at::randn({kB, kC, kD}), at::randn({kD}), at::randn({kD})});
    ExpectAlike([&](const auto& in) { return Norm(in[0], in[1], in[2], 1e-6); },
                [&](const auto& in) { return device_ops::Norm(in[0], in[1], in[2], 1e-6); },
                {at::randn({kB, kC, kD}), at::randn({kD}), at::randn({kD})});
    ExpectAlike([&](const auto& in) { return Norm(in[0], in[1], in[2], 1e-6); },
                [&](const auto& in) { return device_ops::Norm(in[0], in[1], in[2], 1e-6); },
                {at::randn({kB, kC, kD}), at::randn({kB, kD}), at::randn({kB, kD})});
  }
  {
    SCOPED_TRACE("gelu");
    ExpectAlike([&](const auto& in) { return GeluDropout(in[0], none); },
                [&](const auto& in) { return device_ops::GeluDropout(in[0], none); }, {at::randn({kB, kD})});
    ExpectAlike([&](const auto& in) { return GeluTanh(in[0]); },
                [&](const auto& in) { return device_ops::GeluTanh(in[0]); }, {at::randn({kB, kD})});
  }
  {
    SCOPED_TRACE("product and convolution");
    ExpectAlike([&](const auto& in) { return Product(in[0], in[1], in[2]); },
                [&](const auto& in) { return device_ops::Product(in[0], in[1], in[2]); },
                {at::randn({kB, kC, kD}), at::randn({5, kD}), at::randn({5})});
    const std::vector<int64_t> stride{2, 2}, padding{1, 1};
    ExpectAlike([&](const auto& in) { return Convolve(in[0], in[1], in[2], stride, padding); },
                [&](const auto& in) { return device_ops::Convolve(in[0], in[1], in[2], stride, padding); },
                {at::randn({kB, 3, 9, 9}), at::randn({4, 3, 3, 3}), at::randn({4})});
  }
}

// Rows that are as wide as the kernels of their own take, beside those above, which are not; and losses, of rows that
// begin at any address and at none but multiples of 16 bytes.
TEST_P(DeviceOps, RowsGiveWhatTheHostsKernelsGive) {
  for (const int64_t width : {64, 128, 256, 768, 2048}) {
    for (const int64_t rows : {1, 37, 5000}) {
      SCOPED_TRACE(testing::Message() << "norm of " << rows << " x " << width);
      ASSERT_TRUE(device_ops::IsNormWidth(width));
      const auto norm = [](const auto& in) { return Norm(in[0], in[1], in[2], 1e-6); };
      const auto of_rows = [](const auto& in) { return device_ops::NormOfRows(in[0], in[1], in[2], 1e-6); };
      ExpectAlikeOn(where, norm, of_rows, {at::randn({rows, width}) * 3 + 1, at::randn({width}), at::randn({width})});
    }
  }
  for (const int64_t classes : {5, 64, 1037}) {
    SCOPED_TRACE(testing::Message() << "loss of " << classes);
    at::Tensor targets = at::randint(0, classes, {77}, at::kLong);
    targets[3] = -100;
    ExpectAlikeOn(
        where, [&](const auto& in) { return SumOfTokenLosses(in[0], in[1], targets, -100); },
        [&](const auto& in) { return device_ops::TokenLoss(in[0], in[1], targets.to(where), -100); },
        {at::randn({77, 32}), at::randn({classes, 32})});
  }
}

// Sums over more rows than one block takes, of columns that are no multiple of what a load takes; weights as they lie
// and turned.
TEST_P(DeviceOps, ProductsGiveWhatTheHostsGive) {
  for (const int64_t outputs : {3, 261, 264}) {
    for (const int64_t rows : {0, 1, 300, 4100}) {
      SCOPED_TRACE(testing::Message() << rows << " rows, " << outputs << " outputs");
      ExpectAlikeOn(
          where, [](const auto& in) { return Product(in[0], in[1], in[2]); },
          [](const auto& in) { return device_ops::Product(in[0], in[1], in[2]); },
          {at::randn({2, rows, 16}), at::randn({outputs, 16}), at::randn({outputs})});
      ExpectAlikeOn(
          where, [](const auto& in) { return Product(in[0], in[1].t(), in[2]); },
          [](const auto& in) { return device_ops::Product(in[0], in[1].t(), in[2]); },
          {at::randn({2, rows, 16}), at::randn({16, outputs}), at::randn({outputs})});
    }
  }
}

// In 16 bits the same as in 32, but for one rounding of each value that is stored: half a unit in its last place,
// beside what sums in another order are apart.
TEST_P(DeviceOps, RowsIn16BitsAreRoundedOnce) {
  for (const at::ScalarType type : {at::kBFloat16, at::kHalf}) {
    SCOPED_TRACE(c10::toString(type));
    const double unit = type == at::kBFloat16 ? 1.0 / 256 : 1.0 / 2048;
    const auto expect_rounded = [&](const at::Tensor& rounded, const at::Tensor& whole) {
      EXPECT_EQ(rounded.scalar_type(), type);
      const at::Tensor here = rounded.cpu().to(at::kFloat), there = whole.cpu();
      const at::Tensor allowed = there.abs() * (1.01 * unit) + there.abs().max() * 1e-5;
      EXPECT_TRUE((here - there).abs().le(allowed).all().item<bool>());
    };
    const at::Tensor x = at::randn({300, 768}).to(type).to(where), gamma = at::randn({768}).to(where);
    const at::Tensor narrow_x = x.detach().requires_grad_(true), wide_x = x.to(at::kFloat).requires_grad_(true);
    const at::Tensor narrow = device_ops::NormOfRows(narrow_x, gamma, gamma, 1e-5);
    const at::Tensor wide = device_ops::NormOfRows(wide_x, gamma, gamma, 1e-5);
    expect_rounded(narrow, wide);
    const at::Tensor d = at::randn(x.sizes()).to(type).to(where);
    expect_rounded(torch::autograd::grad({narrow}, {narrow_x}, {d})[0],
                   torch::autograd::grad({wide}, {wide_x}, {d.to(at::kFloat)})[0]);

    // x's logits are rounded too: x and weight are such that none has to be.
    const at::Tensor eye = at::eye(64).to(type).to(where), targets = at::randint(0, 1037, {64}, at::kLong).to(where);
    const at::Tensor columns = (at::randn({1037, 64}) * 4).to(type).to(where);
    const at::Tensor of_narrow = columns.detach().requires_grad_(true);
    const at::Tensor of_wide = columns.to(at::kFloat).requires_grad_(true);
    const at::Tensor narrow_loss = device_ops::TokenLoss(eye, of_narrow, targets, -100);
    const at::Tensor wide_loss = device_ops::TokenLoss(eye.to(at::kFloat), of_wide, targets, -100);
    EXPECT_EQ(narrow_loss.scalar_type(), at::kFloat);
    // The sums are in float32 either way, in another order.
    EXPECT_NEAR(narrow_loss.item<double>(), wide_loss.item<double>(), 1e-5 * wide_loss.item<double>());
    expect_rounded(torch::autograd::grad({narrow_loss}, {of_narrow})[0],
                   torch::autograd::grad({wide_loss}, {of_wide})[0]);

    for (const int64_t outputs : {261, 264}) {
      const at::Tensor dy = at::randn({4100, outputs}).to(type).to(where);
      const at::Tensor bias = at::randn({outputs}).to(type).to(where).requires_grad_(true);
      const at::Tensor y = device_ops::ProductOfRows(at::randn({4100, 16}).to(type).to(where),
                                                     at::randn({outputs, 16}).to(type).to(where), bias);
      expect_rounded(torch::autograd::grad({y}, {bias}, {dy})[0], dy.to(at::kFloat).sum(0));
    }
  }
}

// A kernel whose maximum passes over what is no number would hide that a run has diverged.
TEST_P(DeviceOps, ALossOfWhatIsNoNumberIsNone) {
  for (const int64_t classes : {5, 64, 1037}) {
    for (const int64_t bad : {int64_t{0}, classes - 1}) {
      SCOPED_TRACE(testing::Message() << "class " << bad << " of " << classes);
      at::Tensor weight = at::randn({classes, 32});
      weight[bad][7] = std::numeric_limits<float>::quiet_NaN();
      const at::Tensor targets = at::full({77}, 1, at::kLong).to(where);
      const at::Tensor loss = device_ops::TokenLoss(at::randn({77, 32}).to(where), weight.to(where), targets, -100);
      EXPECT_TRUE(loss.isnan().item<bool>());
    }
  }
}

// Dropout: the share that is kept, the scale of what is, and the key alone decides.
TEST_P(DeviceOps, WhatIsDroppedFollowsFromTheKey) {
  const DropoutDraw draw{.key = 5, .p = 0.25};
  const at::Tensor mask = KeepMask({100, 100}, at::TensorOptions(at::kFloat).device(where), draw);
  EXPECT_TRUE(mask.equal(KeepMask({100, 100}, at::TensorOptions(at::kFloat).device(where), draw)));
  EXPECT_FALSE(mask.equal(KeepMask({100, 100}, at::TensorOptions(at::kFloat).device(where), {.key = 6, .p = 0.25})));
  EXPECT_NEAR(mask.mean().item<double>(), 1, 0.02);  // 3 standard deviations of 10,000 draws
  EXPECT_TRUE((mask.eq(0).logical_or(mask.eq(1 / 0.75f))).all().item<bool>());
  // Attention that drops is attention where nothing is dropped: the explicit form against the library's.
  const at::Tensor qkv = at::randn({2, 6, 24}).to(where), nobody = at::empty({2, 0}, qkv.options().dtype(at::kInt));
  const at::Tensor whole = device_ops::PrefixAttention(qkv, nobody, 2, {});
  const at::Tensor barely = device_ops::PrefixAttention(qkv, nobody, 2, {.key = 1, .p = 1e-12});
  EXPECT_LT((whole - barely).abs().max().item<double>(), 1e-5);
  const at::Tensor dropped = device_ops::PrefixAttention(qkv, nobody, 2, draw);
  EXPECT_TRUE(dropped.equal(device_ops::PrefixAttention(qkv, nobody, 2, draw)));
  EXPECT_GT((whole - dropped).abs().max().item<double>(), 1e-3);
}

INSTANTIATE_TEST_SUITE_P(Devices, DeviceOps, testing::Values("Host", "Cuda"),
                         [](const auto& which) { return std::string(which.param); });

}  // namespace
}  // namespace trainyard
