#include "trainer/parallel/block_norm.h"

#include <algorithm>
#include <cmath>

#include "trainer/kernels/kernels.h"
#include "trainer/model/parallel_for.h"
#include "trainer/parallel/flat_layout.h"

namespace trainyard {
namespace {

constexpr int64_t kBlocksPerTask = 256;  // at least: 16,384 elements are worth a thread

}  // namespace

void SumBlocks(std::span<const float> values, std::span<double> blocks) {
  ParallelFor(0, static_cast<int64_t>(blocks.size()), kBlocksPerTask, [&](int64_t first, int64_t last) {
    kernels::Kernels().block_squares(values.data(), blocks.data(), first, last);
  });
}

double NormOf(std::span<const double> blocks) {
  double sum = 0;
  for (const double block : blocks) sum += block;
  return std::sqrt(sum);
}

float ClipScale(double norm, double clip) {
  return clip > 0 ? static_cast<float>(std::min(1.0, clip / (norm + 1e-6))) : 1.0f;
}

}  // namespace trainyard
