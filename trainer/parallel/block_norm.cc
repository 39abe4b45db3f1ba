#include "trainer/parallel/block_norm.h"

#include <algorithm>
#include <cmath>

#include "trainer/kernels/kernels.h"
#include "trainer/model/parallel_for.h"

namespace trainyard {
namespace {

constexpr int64_t kBlocksPerTask = 256;  // at least: 16,384 elements are worth a thread

}  // namespace

double BlockNorm(std::span<const float> flat, std::vector<double>& scratch) {
  scratch.resize(flat.size() / 64);
  ParallelFor(0, static_cast<int64_t>(scratch.size()), kBlocksPerTask, [&](int64_t begin, int64_t end) {
    kernels::Kernels().block_squares(flat.data(), scratch.data(), begin, end);
  });
  double sum = 0;
  for (double block : scratch) sum += block;
  return std::sqrt(sum);
}

float ClipScale(double norm, double clip) {
  return clip > 0 ? static_cast<float>(std::min(1.0, clip / (norm + 1e-6))) : 1.0f;
}

}  // namespace trainyard
