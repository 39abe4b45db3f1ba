#include "trainer/task/hybrid_vit_cascade/diffusion.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/full.h>

#include <algorithm>
#include <cmath>
#include <numbers>

namespace trainyard::hvc {

NoiseSchedule::NoiseSchedule(int64_t steps) {
  const auto curve = [steps](int64_t t) {
    const double x =
        std::cos((static_cast<double>(t) / static_cast<double>(steps) + 0.008) / 1.008 * std::numbers::pi / 2);
    return x * x;
  };
  double alpha_bar = 1;
  for (int64_t t = 0; t < steps; ++t) {
    alpha_bar *= 1 - std::clamp(1 - curve(t + 1) / curve(t), 1e-4, 0.9999);
    alpha_bar_.push_back(alpha_bar);
    signal_.push_back(static_cast<float>(std::sqrt(alpha_bar)));
    noise_.push_back(static_cast<float>(std::sqrt(1 - alpha_bar)));
  }
}

at::Tensor NoiseSchedule::Signal(const at::Tensor& t) const { return Look(signal_, t); }
at::Tensor NoiseSchedule::Noise(const at::Tensor& t) const { return Look(noise_, t); }

at::Tensor NoiseSchedule::Look(const std::vector<float>& table, const at::Tensor& t) const {
  at::Tensor values = at::empty({t.size(0), 1, 1, 1, 1}, at::kFloat);
  for (int64_t b = 0; b < t.size(0); ++b)
    values.data_ptr<float>()[b] = table.at(static_cast<size_t>(t.data_ptr<int64_t>()[b]));
  return values;
}

at::Tensor NoiseLevel::Noised(const at::Tensor& x0, const at::Tensor& e) const { return signal * x0 + noise * e; }
at::Tensor NoiseLevel::Velocity(const at::Tensor& x0, const at::Tensor& e) const { return signal * e - noise * x0; }
at::Tensor NoiseLevel::CleanOf(const at::Tensor& x, const at::Tensor& v) const { return signal * x - noise * v; }
at::Tensor NoiseLevel::NoiseOf(const at::Tensor& x, const at::Tensor& v) const { return signal * v + noise * x; }

std::vector<int64_t> DdimSteps(int64_t steps, int64_t count) {
  std::vector<int64_t> chosen;
  for (int64_t i = count - 1; i >= 0; --i)
    chosen.push_back(count == 1 ? steps - 1 : (i * (steps - 1) + (count - 1) / 2) / (count - 1));
  return chosen;
}

at::Tensor Ddim(const NoiseSchedule& schedule, int64_t count, at::Tensor x,
                const std::function<at::Tensor(const at::Tensor& x, const at::Tensor& t)>& velocity) {
  const std::vector<int64_t> steps = DdimSteps(schedule.steps(), count);
  for (size_t i = 0; i < steps.size(); ++i) {
    const at::Tensor t = at::full({x.size(0)}, steps[i], at::kLong);
    const NoiseLevel level(schedule, t, x.device());
    const at::Tensor x0 = level.CleanOf(x, velocity(x, t)).clamp_(-1, 1);
    if (i + 1 == steps.size()) return x0;
    const at::Tensor e = (x - level.signal * x0) / level.noise;
    x = NoiseLevel(schedule, at::full({x.size(0)}, steps[i + 1], at::kLong), x.device()).Noised(x0, e);
  }
  return x;
}

}  // namespace trainyard::hvc
