#include "trainer/parallel/block_norm.h"

#include <algorithm>
#include <cmath>

#include "trainer/kernels/kernels.h"

namespace trainyard {

double BlockNorm(std::span<const float> flat, std::vector<double>& scratch) {
  scratch.resize(flat.size() / 64);
  kernels::Kernels().block_squares(flat.data(), scratch.data(), 0, static_cast<int64_t>(scratch.size()));
  double sum = 0;
  for (double block : scratch) sum += block;
  return std::sqrt(sum);
}

float ClipScale(double norm, double clip) {
  return clip > 0 ? static_cast<float>(std::min(1.0, clip / (norm + 1e-6))) : 1.0f;
}

}  // namespace trainyard
