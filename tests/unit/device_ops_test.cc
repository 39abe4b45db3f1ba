// What devices compute, with tensors of the host: against the host's kernels.
#include "trainer/model/device_ops.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/randint.h>
#include <ATen/ops/randn.h>
#include <gtest/gtest.h>
#include <torch/csrc/autograd/autograd.h>

#include <functional>
#include <vector>

#include "trainer/model/attention.h"
#include "trainer/model/convolve.h"
#include "trainer/model/fused_ops.h"
#include "trainer/model/product.h"

namespace trainyard {
namespace {

using Operation = std::function<at::Tensor(const std::vector<at::Tensor>&)>;

// Values and gradients; 1e-5 of the largest value: sums in another order.
void ExpectAlike(const Operation& host, const Operation& device, const std::vector<at::Tensor>& inputs) {
  std::vector<at::Tensor> leaves[2], gradients[2];
  at::Tensor values[2];
  at::Tensor weights;
  for (const int i : {0, 1}) {
    for (const at::Tensor& input : inputs) leaves[i].push_back(input.clone().requires_grad_(true));
    values[i] = (i == 0 ? host : device)(leaves[i]);
    if (i == 0) weights = at::randn(values[0].sizes());
    gradients[i] = torch::autograd::grad({(values[i] * weights).sum()}, leaves[i]);
  }
  const auto close = [](const at::Tensor& a, const at::Tensor& b) {
    ASSERT_EQ(a.sizes(), b.sizes());
    EXPECT_LT(((a - b).abs().max() / b.abs().max().clamp_min(0.1)).item<double>(), 1e-5);
  };
  close(values[1], values[0]);
  for (size_t i = 0; i < inputs.size(); ++i) {
    SCOPED_TRACE(testing::Message() << "gradient " << i);
    close(gradients[1][i], gradients[0][i]);
  }
}

TEST(DeviceOps, GiveWhatTheHostsKernelsGive) {
  constexpr int64_t kB = 3, kC = 7, kQ = 4, kH = 2, kD = 16;
  const at::Tensor visible = at::randint(0, kC + 1, {kB, kQ}, at::kInt), nobody = at::empty({kB, 0}, at::kInt);
  const DropoutDraw none;
  {
    SCOPED_TRACE("attention of context and queries");
    ExpectAlike([&](const auto& in) { return PrefixAttention(in[0], visible, kH, none); },
                [&](const auto& in) { return device_ops::PrefixAttention(in[0], visible, kH, none); },
                {at::randn({kB, kC + kQ, 3 * kD})});
  }
  {
    SCOPED_TRACE("causal attention");
    ExpectAlike([&](const auto& in) { return PrefixAttention(in[0], nobody, kH, none); },
                [&](const auto& in) { return device_ops::PrefixAttention(in[0], nobody, kH, none); },
                {at::randn({kB, kC, 3 * kD})});
  }
  {
    SCOPED_TRACE("attention of queries alone");
    ExpectAlike([&](const auto& in) { return PrefixAttentionOfQueries(in[0], in[1], visible, kH, none); },
                [&](const auto& in) { return device_ops::PrefixAttentionOfQueries(in[0], in[1], visible, kH, none); },
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

// Dropout: the share that is kept, the scale of what is, and the key alone decides.
TEST(DeviceOps, WhatIsDroppedFollowsFromTheKey) {
  const DropoutDraw draw{.key = 5, .p = 0.25};
  const at::Tensor mask = KeepMask({100, 100}, at::TensorOptions(at::kFloat), draw);
  EXPECT_TRUE(mask.equal(KeepMask({100, 100}, at::TensorOptions(at::kFloat), draw)));
  EXPECT_FALSE(mask.equal(KeepMask({100, 100}, at::TensorOptions(at::kFloat), {.key = 6, .p = 0.25})));
  EXPECT_NEAR(mask.mean().item<double>(), 1, 0.02);  // 3 standard deviations of 10,000 draws
  EXPECT_TRUE((mask.eq(0).logical_or(mask.eq(1 / 0.75f))).all().item<bool>());
  // Attention that drops is attention where nothing is dropped: the explicit form against the library's.
  const at::Tensor qkv = at::randn({2, 6, 24}), nobody = at::empty({2, 0}, at::kInt);
  const at::Tensor whole = device_ops::PrefixAttention(qkv, nobody, 2, {});
  const at::Tensor barely = device_ops::PrefixAttention(qkv, nobody, 2, {.key = 1, .p = 1e-12});
  EXPECT_LT((whole - barely).abs().max().item<double>(), 1e-5);
  const at::Tensor dropped = device_ops::PrefixAttention(qkv, nobody, 2, draw);
  EXPECT_TRUE(dropped.equal(device_ops::PrefixAttention(qkv, nobody, 2, draw)));
  EXPECT_GT((whole - dropped).abs().max().item<double>(), 1e-3);
}

}  // namespace
}  // namespace trainyard
