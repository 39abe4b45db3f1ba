// Normalisation of planes, for kernels_impl.cc alone.
#ifndef TRAINYARD_TRAINER_KERNELS_PLANE_NORM_IMPL_H_
#define TRAINYARD_TRAINER_KERNELS_PLANE_NORM_IMPL_H_

#include <algorithm>
#include <array>
#include <cstdint>
#include <limits>

#include "trainer/kernels/kernels.h"
#include "trainer/kernels/scalar_math.h"

namespace trainyard::kernels {
namespace {

// The sums over [0, n) of what add(i, lane) adds to lane `lane` of each: 16 lanes over blocks, blocks in float64.
template <size_t kSums>
struct PlaneSums {
  static constexpr int64_t kWide = 16, kBlock = 1024;
  float lanes[kSums][kWide];
  std::array<double, kSums> totals{};

  template <class Add>
  void Over(int64_t n, Add add) {
    for (int64_t begin = 0; begin < n; begin += kBlock) {
      const int64_t end = std::min(n, begin + kBlock), whole = begin + (end - begin) / kWide * kWide;
      for (auto& sum : lanes) std::fill_n(sum, kWide, 0.0f);
      for (int64_t i = begin; i < whole; i += kWide) {
#pragma omp simd
        for (int64_t lane = 0; lane < kWide; ++lane) add(i + lane, lane);
      }
      for (int64_t i = whole; i < end; ++i) add(i, i - whole);
      for (size_t s = 0; s < kSums; ++s) {
        for (const float lane : lanes[s]) totals[s] += static_cast<double>(lane);
      }
    }
  }
};

template <class T>
void PlaneMoments(const T* x, int64_t n, float* mean, float* variance) {
  const auto count = static_cast<double>(n);
  PlaneSums<1> sum, squares;
  sum.Over(n, [&](int64_t i, int64_t lane) { sum.lanes[0][lane] += Load(x[i]); });
  const auto middle = static_cast<float>(sum.totals[0] / count);
  squares.Over(n, [&](int64_t i, int64_t lane) {
    const float apart = Load(x[i]) - middle;
    squares.lanes[0][lane] += apart * apart;
  });
  *mean = middle;
  *variance = static_cast<float>(squares.totals[0] / count);
}

template <class T>
void PlaneMomentsBackward(const T* x, int64_t n, float mean, float to_mean, float to_variance, T* dx) {
#pragma omp simd
  for (int64_t i = 0; i < n; ++i) Store(Load(dx[i]) + (to_mean + to_variance * (Load(x[i]) - mean)), dx[i]);
}

inline float Normal(const PlaneNorm& norm, float x) { return (x - norm.mean) * norm.slope + norm.shift; }

template <class T>
void PlaneNormForward(const PlaneNorm& norm, const T* x, int64_t n, T* y) {
  const float least = norm.relu ? 0.0f : -std::numeric_limits<float>::infinity();
#pragma omp simd
  for (int64_t i = 0; i < n; ++i) {
    const float normal = Normal(norm, Load(x[i]));
    Store(normal < least ? least : normal, y[i]);  // what is no number stays so
  }
}

template <class T>
void PlaneNormBackward(const PlaneNorm& norm, const T* x, const T* dy, int64_t n, T* dx, double* sum,
                       double* sum_apart) {
  const float least = norm.relu ? 0.0f : -std::numeric_limits<float>::infinity();
  PlaneSums<2> sums;
  sums.Over(n, [&](int64_t i, int64_t lane) {
    const float value = Load(x[i]), passed = Normal(norm, value) > least ? Load(dy[i]) : 0.0f;
    sums.lanes[0][lane] += passed;
    sums.lanes[1][lane] += passed * (value - norm.mean);
    Store(passed * norm.slope, dx[i]);
  });
  *sum = sums.totals[0];
  *sum_apart = sums.totals[1];
}

}  // namespace
}  // namespace trainyard::kernels

#endif  // TRAINYARD_TRAINER_KERNELS_PLANE_NORM_IMPL_H_
