#include "trainer/model/attention.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/eye.h>
#include <ATen/ops/randint.h>
#include <ATen/ops/randn.h>
#include <ATen/ops/scaled_dot_product_attention.h>
#include <ATen/ops/zeros.h>
#include <ATen/ops/zeros_like.h>
#include <gtest/gtest.h>
#include <torch/csrc/autograd/autograd.h>

#include <array>
#include <cmath>
#include <limits>

namespace trainyard {
namespace {

// Which rows see which: context rows the context up to themselves, queries a prefix and themselves.
at::Tensor MaskOf(const at::Tensor& visible, int64_t C) {
  const int64_t B = visible.size(0), Q = visible.size(1), R = C + Q;
  at::Tensor mask = at::zeros({B, 1, R, R}, at::kBool);
  for (int64_t b = 0; b < B; ++b) {
    for (int64_t r = 0; r < R; ++r) {
      const int64_t n = r < C ? r + 1 : visible[b][r - C].item<int32_t>();
      for (int64_t j = 0; j < n; ++j) mask[b][0][r][j] = true;
      mask[b][0][r][r] = true;
    }
  }
  return mask;
}

at::Tensor Heads(const at::Tensor& x, int64_t H) { return x.view({x.size(0), x.size(1), H, -1}).transpose(1, 2); }

at::Tensor ReferenceAttention(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v,
                              const std::optional<at::Tensor>& mask, int64_t H) {
  return at::scaled_dot_product_attention(Heads(q, H), Heads(k, H), Heads(v, H), mask)
      .transpose(1, 2)
      .reshape({q.size(0), q.size(1), -1});
}

struct AttentionCase {
  int64_t B, C, Q, H, E;
};
class AttentionTest : public testing::TestWithParam<AttentionCase> {};

// Largest difference as a share of the largest value; of 0.1 where all are smaller: a row that sees
// only itself has no gradient for its query, and what is computed is the rounding of values of order one.
double RelativeError(const at::Tensor& mine, const at::Tensor& expected) {
  return ((mine - expected).abs().max() / expected.abs().max().clamp_min(0.1)).item<double>();
}

TEST_P(AttentionTest, AgreesWithTorchForwardAndBackward) {
  const auto [B, C, Q, H, E] = GetParam();
  const int64_t D = H * E, R = C + Q;
  const at::Tensor visible = at::randint(0, C + 1, {B, Q}, at::kInt), mask = MaskOf(visible, C);
  at::Tensor qkv = at::randn({B, R, 3 * D}).requires_grad_(true);
  const DropoutDraw none{0, 0};
  const at::Tensor mine = PrefixAttention(qkv, visible, H, none);
  const at::Tensor expected =
      ReferenceAttention(qkv.narrow(2, 0, D), qkv.narrow(2, D, D), qkv.narrow(2, 2 * D, D), mask, H);
  EXPECT_LT(RelativeError(mine, expected), 1e-5);
  const at::Tensor weights = at::randn(mine.sizes());
  const at::Tensor g = torch::autograd::grad({(mine * weights).sum()}, {qkv})[0],
                   e = torch::autograd::grad({(expected * weights).sum()}, {qkv})[0];
  EXPECT_LT(RelativeError(g, e), 1e-5);

  at::Tensor q = at::randn({B, Q, D}).requires_grad_(true), kv = at::randn({B, R, 2 * D}).requires_grad_(true);
  const at::Tensor only = PrefixAttentionOfQueries(q, kv, visible, H, none);
  const at::Tensor only_expected =
      ReferenceAttention(q, kv.narrow(2, 0, D), kv.narrow(2, D, D), mask.narrow(2, C, Q), H);
  EXPECT_LT(RelativeError(only, only_expected), 1e-5);
  const at::Tensor w = at::randn(only.sizes());
  const auto grads = torch::autograd::grad({(only * w).sum()}, {q, kv}),
             expected_grads = torch::autograd::grad({(only_expected * w).sum()}, {q, kv});
  for (size_t i = 0; i < 2; ++i) EXPECT_LT(RelativeError(grads[i], expected_grads[i]), 1e-5) << i;
}

INSTANTIATE_TEST_SUITE_P(Shapes, AttentionTest,
                         testing::Values(AttentionCase{2, 37, 9, 4, 16}, AttentionCase{1, 0, 1, 2, 16},
                                         AttentionCase{3, 1, 1, 1, 8}, AttentionCase{2, 16, 17, 2, 24},
                                         AttentionCase{1, 100, 1, 2, 64}, AttentionCase{1, 5, 3, 3, 33}));

// Numbers of queries and keys that are a multiple of nothing, and of sixteen.
TEST(Attention, OfEverythingIsTorchs) {
  for (const auto& [Q, K, H, E] :
       {std::array<int64_t, 4>{300, 50, 3, 8}, {32, 48, 2, 16}, {1, 1, 1, 4}, {17, 33, 2, 40}}) {
    const int64_t D = H * E;
    const at::Tensor q = at::randn({2, Q, D}).requires_grad_(), kv = at::randn({2, K, 2 * D}).requires_grad_(),
                     qkv = at::randn({2, K, 3 * D}).requires_grad_();
    const auto check = [&](const at::Tensor& mine, const at::Tensor& expected, const std::vector<at::Tensor>& inputs) {
      EXPECT_LT(RelativeError(mine, expected), 1e-5);
      const at::Tensor w = at::randn(mine.sizes());
      const auto g = torch::autograd::grad({(mine * w).sum()}, inputs),
                 e = torch::autograd::grad({(expected * w).sum()}, inputs);
      for (size_t i = 0; i < g.size(); ++i) EXPECT_LT(RelativeError(g[i], e[i]), 1e-5) << Q << " " << i;
    };
    const auto part = [&](const at::Tensor& x, int64_t i) { return x.narrow(2, i * D, D); };
    check(CrossAttention(q, kv, H, {}), ReferenceAttention(q, part(kv, 0), part(kv, 1), {}, H), {q, kv});
    check(SelfAttention(qkv, H, {}), ReferenceAttention(part(qkv, 0), part(qkv, 1), part(qkv, 2), {}, H), {qkv});
  }
}

// More queries than keys: a query's place among them, not among the keys, is what its dropout is drawn from.
TEST(Attention, OfEverythingDropsTheSameInBackward) {
  // Both heads have the same values, so that what differs is what was dropped.
  const at::Tensor values = at::randn({1, 40, 4});
  const at::Tensor q = at::zeros({1, 300, 8}),
                   kv = at::cat({at::randn({1, 40, 8}), values, values}, 2).requires_grad_();
  const DropoutDraw draw{.key = 9, .p = 0.4};
  const at::Tensor y = CrossAttention(q, kv, 2, draw), w = at::randn(y.sizes());
  EXPECT_TRUE(CrossAttention(q, kv, 2, draw).equal(y));
  EXPECT_FALSE(CrossAttention(q, kv, 2, {}).equal(y));
  // The output is linear in the values, so their gradient times them is the output.
  const at::Tensor g = torch::autograd::grad({(y * w).sum()}, {kv})[0];
  EXPECT_NEAR((g * kv).narrow(2, 8, 8).sum().item<double>(), (y * w).sum().item<double>(), 1e-3);
  // Queries that are alike differ by what they dropped alone: no two of two heads dropped the same of 40.
  const at::Tensor rows = at::cat({y[0].narrow(1, 0, 4), y[0].narrow(1, 4, 4)});
  EXPECT_GT((rows.unsqueeze(0) - rows.unsqueeze(1)).abs().amax(2).add(at::eye(600)).min().item<double>(), 0);
}

// The kernels go by addresses.
TEST(Attention, RefusesWhatDoesNotFit) {
  const auto refused = [](auto attend) { EXPECT_THROW(attend(), std::logic_error); };
  const auto of = [](at::IntArrayRef sizes) { return at::randn(sizes); };
  const auto visible = [](int64_t b, int64_t q) { return at::zeros({b, q}, at::kInt); };
  refused([&] { SelfAttention(of({2, 5, 25}), 2, {}); });
  refused([&] { SelfAttention(of({5, 24}), 2, {}); });
  refused([&] { CrossAttention(of({2, 5, 8}), of({2, 7, 8}), 2, {}); });
  refused([&] { CrossAttention(of({2, 5, 8}), of({1, 7, 16}), 2, {}); });
  refused([&] { CrossAttention(of({2, 5, 8}), of({2, 7, 16}).to(at::kBFloat16), 2, {}); });
  refused([&] { PrefixAttention(of({2, 5, 24}), visible(2, 6), 2, {}); });
  refused([&] { PrefixAttention(of({2, 5, 24}), visible(1, 2), 2, {}); });
  refused([&] { PrefixAttention(of({2, 5, 24}), visible(2, 2).to(at::kLong), 2, {}); });
  refused([&] { PrefixAttentionOfQueries(of({2, 3, 8}), of({2, 5, 16}), visible(2, 2), 2, {}); });
  // A part of something larger is what it shows.
  const at::Tensor wide = at::arange(12, at::kInt).view({2, 6}).remainder(3), part = wide.narrow(1, 1, 2);
  const at::Tensor qkv = of({2, 5, 24});
  EXPECT_TRUE(PrefixAttention(qkv, part, 2, {}).equal(PrefixAttention(qkv, part.contiguous(), 2, {})));
}

// A model that has diverged does not look like one that has not.
TEST(Attention, WhatIsNoNumberStaysNone) {
  constexpr float kInfinite = std::numeric_limits<float>::infinity();
  for (const float score : {-kInfinite, kInfinite, std::nanf("")}) {
    const at::Tensor q = at::ones({1, 3, 4}), kv = at::ones({1, 20, 8});
    kv.narrow(2, 0, 1).fill_(score);
    EXPECT_TRUE(CrossAttention(q, kv, 1, {}).isnan().all().item<bool>()) << score;
  }
}

TEST(Attention, ScoresOfAnySizeStayFinite) {
  at::Tensor qkv = (at::randn({1, 20, 48}) * 100).requires_grad_(true);
  const DropoutDraw none{0, 0};
  const at::Tensor out = PrefixAttention(qkv, at::randint(0, 11, {1, 10}, at::kInt), 1, none);
  EXPECT_TRUE(out.isfinite().all().item<bool>());
  EXPECT_TRUE(torch::autograd::grad({out.sum()}, {qkv})[0].isfinite().all().item<bool>());
}

// With dropout the output is linear in the values: backward must use forward's mask.
TEST(Attention, BackwardRepeatsTheMask) {
  const at::Tensor visible = at::randint(0, 31, {2, 6}, at::kInt);
  at::Tensor q = at::randn({2, 6, 32}), kv = at::randn({2, 36, 64}).requires_grad_(true);
  auto run = [&](const at::Tensor& x) {
    const DropoutDraw dropout{77, 0.3};
    return PrefixAttentionOfQueries(q, x, visible, 2, dropout);
  };
  const at::Tensor out = run(kv), w = at::randn(out.sizes());
  const at::Tensor g = torch::autograd::grad({(out * w).sum()}, {kv})[0];
  // <g_v, v> equals <w, out(v)> because out is linear in v.
  const double left = (g.narrow(2, 32, 32) * kv.narrow(2, 32, 32)).sum().item<double>(),
               right = (w * out).sum().item<double>();
  EXPECT_NEAR(left, right, 1e-3 * std::abs(right) + 1e-3);
  EXPECT_TRUE(run(kv).equal(out)) << "the same key, the same mask";
}

TEST(Attention, DropoutKeepsTheMean) {
  const at::Tensor visible = at::zeros({1, 1}, at::kInt) + 60;
  const at::Tensor q = at::randn({1, 1, 16}), kv = at::randn({1, 61, 32}).abs();
  const DropoutDraw none{0, 0};
  const at::Tensor expected = PrefixAttentionOfQueries(q, kv, visible, 1, none);
  at::Tensor mean = at::zeros_like(expected);
  constexpr int kRuns = 4000;
  for (uint64_t key = 0; key < kRuns; ++key) {
    const DropoutDraw dropout{key, 0.5};
    mean += PrefixAttentionOfQueries(q, kv, visible, 1, dropout) / kRuns;
  }
  EXPECT_LT(RelativeError(mean, expected), 0.05);  // about five standard errors for weights of 1/60
}

TEST(Attention, Bf16IsFp32Rounded) {
  const at::Tensor visible = at::randint(0, 21, {2, 8}, at::kInt);
  const at::Tensor qkv = at::randn({2, 28, 96}).to(at::kBFloat16);
  const DropoutDraw none{0, 0};
  const at::Tensor low = PrefixAttention(qkv, visible, 2, none),
                   high = PrefixAttention(qkv.to(at::kFloat), visible, 2, none);
  EXPECT_LT(RelativeError(low.to(at::kFloat), high), 1.0 / 128);  // one rounding to 8 bits
  for (const auto type : {at::kBFloat16, at::kHalf}) {
    const at::Tensor q = at::randn({2, 9, 32}).to(type), kv = at::randn({2, 28, 64}).to(type), all = qkv.to(type);
    const auto wide = [](const at::Tensor& x) { return x.to(at::kFloat); };
    EXPECT_LT(RelativeError(wide(SelfAttention(all, 2, none)), SelfAttention(wide(all), 2, none)), 1.0 / 128);
    EXPECT_LT(RelativeError(wide(CrossAttention(q, kv, 2, none)), CrossAttention(wide(q), wide(kv), 2, none)),
              1.0 / 128);
  }
}

}  // namespace
}  // namespace trainyard
