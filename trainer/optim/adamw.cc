#include "trainer/optim/adamw.h"

#include <algorithm>
#include <cmath>
#include <stdexcept>
#include <utility>

#include "trainer/kernels/kernels.h"
#include "trainer/model/parallel_for.h"

namespace trainyard {
namespace {

constexpr int64_t kCut = 64;            // elements; leaves the kernel's vectors whole
constexpr int64_t kLeastPerTask = 256;  // cuts: 16,384 elements are worth a thread

}  // namespace

AdamW::AdamW(const OptimConfig& config, std::vector<UpdateRange> ranges) : config_(config), ranges_(std::move(ranges)) {
  for (const UpdateRange& range : ranges_) {
    if (range.begin % kCut != 0 || range.end % kCut != 0)
      throw std::logic_error("an update's range is cut within a block of 64 elements");
  }
}

void AdamW::Step(const AdamWBuffers& buffers, int64_t begin, int64_t end, const AdamWStep& step) const {
  const double beta1 = config_.betas[0], beta2 = config_.betas[1], number = static_cast<double>(step.number);
  kernels::AdamWArgs args{
      .param = buffers.master,
      .exp_avg = buffers.exp_avg,
      .exp_avg_sq = buffers.exp_avg_sq,
      .average = buffers.average,
      .grad = buffers.gradient,
      .grad_scale = step.grad_scale,
      .lr = 0,
      .beta1 = static_cast<float>(beta1),
      .beta2 = static_cast<float>(beta2),
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
    // Elements do not depend on each other, so threads change no bit.
    if (first < last)
      ParallelFor(first / kCut, last / kCut, kLeastPerTask,
                  [&](int64_t from, int64_t to) { kernels::Kernels().adamw(args, from * kCut, to * kCut); });
  }
}

}  // namespace trainyard
