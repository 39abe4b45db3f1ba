#include "trainer/optim/adamw.h"

#include <algorithm>
#include <cmath>
#include <stdexcept>
#include <utility>

namespace trainyard {
namespace {

constexpr int64_t kCut = 64;  // elements; leaves the kernel's vectors whole

}  // namespace

float ClipScale(double norm, double clip) {
  return clip > 0 ? static_cast<float>(std::min(1.0, clip / (norm + 1e-6))) : 1.0f;
}

AdamW::AdamW(const OptimConfig& config, std::vector<UpdateRange> ranges) : config_(config), ranges_(std::move(ranges)) {
  for (const UpdateRange& range : ranges_) {
    if (range.begin % kCut != 0 || range.end % kCut != 0)
      throw std::logic_error("an update's range is cut within a block of 64 elements");
  }
}

void AdamW::Step(FlatMath& math, const AdamWBuffers& buffers, int64_t begin, int64_t end, const AdamWStep& step) const {
  const double beta1 = config_.betas[0], beta2 = config_.betas[1], number = static_cast<double>(step.number);
  kernels::AdamWArgs args{
      .param = buffers.master,
      .exp_avg = buffers.exp_avg,
      .exp_avg_sq = buffers.exp_avg_sq,
      .average = buffers.average,
      .grad = buffers.gradient,
      .grad_scale = step.grad_scale,
      .lr = 0,
      .exp_avg_rate = static_cast<float>(1 - beta1),
      .beta2 = static_cast<float>(beta2),
      .exp_avg_sq_rate = static_cast<float>(1 - beta2),
      .eps = static_cast<float>(config_.eps),
      .weight_decay = 0,
      .bias_correction1 = static_cast<float>(1 - std::pow(beta1, number)),
      .bias_correction2_sqrt = static_cast<float>(std::sqrt(1 - std::pow(beta2, number))),
      .average_rate = static_cast<float>(1 - config_.ema_decay.value_or(0)),
  };
  for (const UpdateRange& range : ranges_) {
    const int64_t first = std::max(range.begin, begin) - begin, last = std::min(range.end, end) - begin;
    args.lr = static_cast<float>(step.lr * range.lr);
    args.weight_decay = static_cast<float>(range.weight_decay);
    if (first < last) math.AdamW(args, first, last);
  }
}

}  // namespace trainyard
