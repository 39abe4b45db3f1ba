#include "trainer/task/hybrid_vit_cascade/image_metrics.h"

#include <ATen/TensorOperators.h>

#include <array>
#include <cmath>

#include "trainer/model/rows.h"
#include "trainer/task/hybrid_vit_cascade/options.h"

namespace trainyard::hvc {
namespace {

constexpr int64_t kRadius = 5, kWindow = 2 * kRadius + 1;
static_assert(kMinSize >= kWindow);

std::array<double, kWindow> Weights() {
  constexpr double kDeviation = 1.5;
  std::array<double, kWindow> weights{};
  double sum = 0;
  for (int64_t i = 0; i < kWindow; ++i) {
    const auto x = static_cast<double>(i - kRadius);
    sum += weights[static_cast<size_t>(i)] = std::exp(-x * x / (2 * kDeviation * kDeviation));
  }
  for (double& weight : weights) weight /= sum;
  return weights;
}

// The weighted mean of the window around each place where one fits.
at::Tensor Smoothed(at::Tensor x) {
  const std::array<double, kWindow> weights = Weights();
  for (int64_t axis = 0; axis < 3; ++axis) {
    const int64_t places = x.size(axis) - kWindow + 1;
    at::Tensor sum = x.narrow(axis, 0, places) * weights[0];
    for (int64_t i = 1; i < kWindow; ++i) sum.add_(x.narrow(axis, i, places), weights[static_cast<size_t>(i)]);
    x = sum;
  }
  return x;
}

double Mean(const at::Tensor& x) { return SumOfEach(x.unsqueeze(0)).item<double>() / static_cast<double>(x.numel()); }

}  // namespace

double Psnr(const at::Tensor& a, const at::Tensor& b) {
  return -10 * std::log10(Mean((a.to(at::kDouble) - b.to(at::kDouble)).square()));
}

double Ssim(const at::Tensor& a, const at::Tensor& b) {
  constexpr double kC1 = 0.01 * 0.01, kC2 = 0.03 * 0.03;
  const at::Tensor x = a.to(at::kDouble), y = b.to(at::kDouble);
  const at::Tensor mx = Smoothed(x), my = Smoothed(y), mxy = mx * my, mx2 = mx * mx, my2 = my * my;
  const at::Tensor vx = Smoothed(x * x) - mx2, vy = Smoothed(y * y) - my2, cxy = Smoothed(x * y) - mxy;
  return Mean((mxy * 2 + kC1) * (cxy * 2 + kC2) / ((mx2 + my2 + kC1) * (vx + vy + kC2)));
}

}  // namespace trainyard::hvc
