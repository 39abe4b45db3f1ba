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

// Sum s is that of term(s, i) over i in [0, n): in 16 lanes over blocks, blocks in float64.
template <size_t kSums, class Term>
inline std::array<double, kSums> PlaneSums(int64_t n, Term term) {
  constexpr int64_t kWide = 16, kBlock = 1024;
  std::array<double, kSums> totals{};
  for (int64_t begin = 0; begin < n; begin += kBlock) {
    const int64_t end = std::min(n, begin + kBlock), whole = begin + (end - begin) / kWide * kWide;
    float lanes[kSums][kWide] = {};
    for (int64_t i = begin; i < whole; i += kWide) {
      for (size_t s = 0; s < kSums; ++s) {
#pragma omp simd
        for (int64_t lane = 0; lane < kWide; ++lane) lanes[s][lane] += term(s, i + lane);
      }
    }
    for (int64_t i = whole; i < end; ++i) {
      for (size_t s = 0; s < kSums; ++s) lanes[s][i - whole] += term(s, i);
    }
    for (size_t s = 0; s < kSums; ++s) {
      for (const float lane : lanes[s]) totals[s] += static_cast<double>(lane);
    }
  }
  return totals;
}

template <class T>
void PlaneMoments(const T* x, int64_t n, float* mean, float* variance) {
  const auto count = static_cast<double>(n);
  const auto middle = static_cast<float>(PlaneSums<1>(n, [=](size_t, int64_t i) { return Load(x[i]); })[0] / count);
  const auto square = [=](size_t, int64_t i) { return (Load(x[i]) - middle) * (Load(x[i]) - middle); };
  *mean = middle;
  *variance = static_cast<float>(PlaneSums<1>(n, square)[0] / count);
}

template <class T>
void PlaneMomentsBackward(const T* x, int64_t n, float mean, float to_mean, float to_variance, T* dx) {
#pragma omp simd
  for (int64_t i = 0; i < n; ++i) Store(to_mean + to_variance * (Load(x[i]) - mean), dx[i]);
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
  const auto passed = [=](int64_t i) { return Normal(norm, Load(x[i])) > least ? Load(dy[i]) : 0.0f; };
  const auto sums = PlaneSums<2>(
      n, [=](size_t which, int64_t i) { return which == 0 ? passed(i) : passed(i) * (Load(x[i]) - norm.mean); });
  *sum = sums[0];
  *sum_apart = sums[1];
#pragma omp simd
  for (int64_t i = 0; i < n; ++i) Store(passed(i) * norm.slope, dx[i]);
}

}  // namespace
}  // namespace trainyard::kernels

#endif  // TRAINYARD_TRAINER_KERNELS_PLANE_NORM_IMPL_H_
