#include "trainer/model/fused_ops.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/dropout.h>
#include <ATen/ops/gelu.h>
#include <ATen/ops/layer_norm.h>
#include <ATen/ops/randn.h>
#include <gtest/gtest.h>
#include <torch/csrc/autograd/autograd.h>

#include <stdexcept>

#include "trainer/model/rows.h"

namespace trainyard {
namespace {

// Largest difference as a share of the largest value.
double RelativeError(const at::Tensor& mine, const at::Tensor& expected) {
  return ((mine - expected).abs().max() / expected.abs().max()).item<double>();
}

TEST(DropoutAddNorm, AgreesWithTorch) {
  at::Tensor x = at::randn({3, 700, 40}).requires_grad_(true), r = at::randn({3, 700, 40}).requires_grad_(true);
  at::Tensor gamma = at::randn({40}).requires_grad_(true), beta = at::randn({40}).requires_grad_(true);
  const DropoutDraw none{0, 0};
  const at::Tensor mine = DropoutAddNorm(x, r, gamma, beta, none), expected = at::layer_norm(x + r, {40}, gamma, beta),
                   w = at::randn(x.sizes());
  EXPECT_LT(RelativeError(mine, expected), 1e-5);
  const auto g = torch::autograd::grad({(mine * w).sum()}, {x, r, gamma, beta}),
             e = torch::autograd::grad({(expected * w).sum()}, {x, r, gamma, beta});
  for (size_t i = 0; i < 4; ++i) EXPECT_LT(RelativeError(g[i], e[i]), 1e-5) << i;
}

// More rows of a sample than a task has.
TEST(Norm, EachSampleHasItsOwnScaleAndShift) {
  at::Tensor x = at::randn({3, 700, 40}).requires_grad_(true), gamma = at::randn({3, 40}).requires_grad_(true),
             beta = at::randn({3, 40}).requires_grad_(true);
  const at::Tensor mine = Norm(x, gamma, beta, 1e-5),
                   expected = at::layer_norm(x, {40}) * gamma.unsqueeze(1) + beta.unsqueeze(1);
  EXPECT_LT(RelativeError(mine, expected), 1e-5);
  const at::Tensor w = at::randn(x.sizes());
  const auto g = torch::autograd::grad({(mine * w).sum()}, {x, gamma, beta}),
             e = torch::autograd::grad({(expected * w).sum()}, {x, gamma, beta});
  for (size_t i = 0; i < g.size(); ++i) EXPECT_LT(RelativeError(g[i], e[i]), 1e-5) << i;
}

TEST(Norm, BearsABatchOfNothing) {
  for (const auto& gamma_sizes : {std::vector<int64_t>{8}, {0, 8}}) {
    const at::Tensor x = at::zeros({0, 7, 8}).requires_grad_(true);
    const at::Tensor gamma = at::ones(gamma_sizes).requires_grad_(true),
                     beta = at::ones(gamma_sizes).requires_grad_(true);
    const at::Tensor y = Norm(x, gamma, beta, 1e-5);
    EXPECT_EQ(y.sizes(), x.sizes());
    const auto g = torch::autograd::grad({y.sum()}, {x, gamma, beta});
    EXPECT_TRUE(g[1].equal(at::zeros(gamma_sizes)) && g[2].equal(at::zeros(gamma_sizes)));
  }
}

TEST(Norm, RefusesWeightsOfAnotherShape) {
  const at::Tensor x = at::randn({3, 7, 8}), of_two = at::randn({2, 8}), wide = at::randn({9});
  EXPECT_THROW(Norm(x, of_two, of_two, 1e-5), std::logic_error);
  EXPECT_THROW(Norm(x, wide, wide, 1e-5), std::logic_error);
  // A part of something larger, as chunk gives it, is what it shows.
  const at::Tensor both = at::randn({3, 16}), gamma = both.narrow(1, 0, 8), beta = both.narrow(1, 8, 8);
  EXPECT_TRUE(Norm(x, gamma, beta, 1e-5).equal(Norm(x, gamma.contiguous(), beta.contiguous(), 1e-5)));
}

TEST(AddGated, AgreesWithTorch) {
  for (const auto type : {at::kFloat, at::kBFloat16}) {
    const auto draw = [&](at::IntArrayRef sizes) { return at::randn(sizes).to(type).requires_grad_(true); };
    const at::Tensor x = draw({3, 70, 40}), y = draw({3, 70, 40}), gate = draw({3, 40});
    const at::Tensor mine = AddGated(x, y, gate), expected = x + y * gate.unsqueeze(1),
                     w = at::randn(x.sizes()).to(type);
    const double rounding = type == at::kFloat ? 1e-5 : 1.0 / 64;  // two roundings to 8 bits
    EXPECT_LT(RelativeError(mine, expected), rounding);
    const auto g = torch::autograd::grad({(mine * w).sum()}, {x, y, gate}),
               e = torch::autograd::grad({(expected * w).sum()}, {x, y, gate});
    for (size_t i = 0; i < g.size(); ++i) EXPECT_LT(RelativeError(g[i], e[i]), rounding) << i;
  }
}

TEST(DropoutAddNorm, DropsTheBranchNotTheResidual) {
  at::Tensor x = at::randn({50, 64}).requires_grad_(true), r = at::randn({50, 64}).requires_grad_(true);
  const at::Tensor gamma = at::zeros({64}) + 1, beta = at::zeros({64});
  const DropoutDraw dropout{5, 0.4};
  const auto g =
      torch::autograd::grad({(DropoutAddNorm(x, r, gamma, beta, dropout) * at::randn({50, 64})).sum()}, {x, r});
  const at::Tensor kept = g[1].ne(0);
  EXPECT_TRUE((g[1] - g[0] / 0.6).masked_select(kept).abs().max().item<float>() < 1e-5);
  EXPECT_NEAR(kept.to(at::kDouble).mean().item<double>(), 0.6, 5 * std::sqrt(0.24 / 3200));
}

TEST(GeluDropout, AgreesWithTorch) {
  at::Tensor x = (at::randn({600, 30}) * 3).requires_grad_(true);
  const DropoutDraw none{0, 0};
  const at::Tensor mine = GeluDropout(x, none), expected = at::gelu(x);
  EXPECT_LT((mine - expected).abs().max().item<float>(), 2e-6);  // erf to 1.5e-7, times values up to ten
  const at::Tensor w = at::randn(x.sizes());
  EXPECT_LT(RelativeError(torch::autograd::grad({(mine * w).sum()}, {x})[0],
                          torch::autograd::grad({(expected * w).sum()}, {x})[0]),
            1e-5);
}

TEST(FusedOps, Bf16IsFp32Rounded) {
  const DropoutDraw none{0, 0};
  const at::Tensor x = at::randn({64, 32}).to(at::kBFloat16);
  EXPECT_LT(RelativeError(GeluDropout(x, none).to(at::kFloat), at::gelu(x.to(at::kFloat))), 1.0 / 128);
}

}  // namespace
}  // namespace trainyard
