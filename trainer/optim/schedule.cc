#include "trainer/optim/schedule.h"

#include <algorithm>
#include <cmath>
#include <numbers>

namespace trainyard {
namespace {

// From `start` to `end` along half a cosine as `share` goes from 0 to 1, and there it stays.
double CosineBetween(double start, double end, double share) {
  share = std::clamp(share, 0.0, 1.0);
  return end + (start - end) / 2 * (1 + std::cos(std::numbers::pi * share));
}

double OneCycle(const ScheduleConfig& schedule, double peak, int64_t step, int64_t total) {
  const double start = peak / schedule.div_factor, end = start / schedule.final_div_factor;
  const double rise_end = schedule.pct_start * static_cast<double>(total) - 1;
  const double last = static_cast<double>(total) - 1;
  const auto s = static_cast<double>(step);
  if (s <= rise_end) return CosineBetween(start, peak, rise_end > 0 ? s / rise_end : 1);
  return CosineBetween(peak, end, last > rise_end ? (s - rise_end) / (last - rise_end) : 1);
}

}  // namespace

double LearningRate(const ScheduleConfig& schedule, double peak, int64_t step, int64_t total) {
  if (schedule.name == "onecycle") return OneCycle(schedule, peak, step, total);
  if (step < schedule.warmup) return peak * static_cast<double>(step) / static_cast<double>(schedule.warmup);
  const double share =
      static_cast<double>(step - schedule.warmup) / static_cast<double>(std::max<int64_t>(1, total - schedule.warmup));
  if (schedule.name == "cosine") return CosineBetween(peak, schedule.min_lr, share);
  if (schedule.name == "linear") return peak + (schedule.min_lr - peak) * std::clamp(share, 0.0, 1.0);
  return peak;
}

void Plateau::Update(const ScheduleConfig& schedule, double metric) {
  // Relative to the best value's size, so that it also works for metrics that are maximised, whose
  // sign was turned. Of an infinite one no share can be taken.
  const double needed = std::isinf(best) ? best : best - 1e-4 * std::abs(best);
  if (metric < needed) {
    best = metric;
    bad = 0;
  } else if (++bad > schedule.patience) {
    multiplier *= schedule.factor;
    bad = 0;
  }
}

bool EarlyStop::Update(const EarlyStopConfig& config, double metric) {
  if (metric < best - config.min_delta) {
    best = metric;
    bad = 0;
  } else {
    ++bad;
  }
  return bad >= config.patience;
}

double ScaledRate(const OptimConfig& optim, int world) {
  if (optim.lr_scaling == "linear") return optim.lr * world;
  if (optim.lr_scaling == "sqrt") return optim.lr * std::sqrt(static_cast<double>(world));
  return optim.lr;
}

}  // namespace trainyard
