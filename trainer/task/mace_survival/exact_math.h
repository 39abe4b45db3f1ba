// Functions of the real numbers made of additions, multiplications, divisions and roots alone, which IEEE 754 rounds
// the same way everywhere: synthetic data has the same bytes on every machine, whatever its C library and processor.
// For files that are compiled without contraction (-ffp-contract=off).
#ifndef TRAINYARD_TRAINER_TASK_MACE_SURVIVAL_EXACT_MATH_H_
#define TRAINYARD_TRAINER_TASK_MACE_SURVIVAL_EXACT_MATH_H_

#include <bit>
#include <cmath>
#include <cstdint>

#include "trainer/base/random.h"

namespace trainyard::mace {

constexpr double kLn2 = 0x1.62e42fefa39efp-1;

// The natural logarithm, to 1e-15 of its size or so. REQUIRES: x is normal and above 0.
inline double ExactLog(double x) {
  const auto bits = std::bit_cast<uint64_t>(x);
  int64_t exponent = static_cast<int64_t>(bits >> 52) - 1023;
  double m = std::bit_cast<double>((bits & 0xFFFFFFFFFFFFFull) | 0x3FF0000000000000ull);  // [1, 2)
  if (m > 1.4142135623730951) {
    m /= 2;
    ++exponent;
  }
  const double z = (m - 1) / (m + 1), z2 = z * z;  // ln m = 2 artanh z, |z| <= 0.172
  double sum = 0;
  for (int k = 23; k >= 1; k -= 2) sum = sum * z2 + 1.0 / k;
  return 2 * z * sum + static_cast<double>(exponent) * kLn2;
}

// The exponential, to 1e-15 of its size or so. REQUIRES: |x| <= 700.
inline double ExactExp(double x) {
  const auto n = static_cast<int64_t>(x / kLn2 + (x < 0 ? -0.5 : 0.5));
  const double r = x - static_cast<double>(n) * kLn2;  // |r| <= 0.35
  double sum = 1;
  for (int k = 18; k >= 1; --k) sum = 1 + sum * r / k;
  return sum * std::bit_cast<double>(static_cast<uint64_t>(n + 1023) << 52);
}

// A standard normal draw (Marsaglia's polar method).
inline double ExactNormal(KeyedRandom& random) {
  for (;;) {
    const double u = 2 * random.UniformDouble() - 1, v = 2 * random.UniformDouble() - 1, s = u * u + v * v;
    if (s > 0 && s < 1) return u * std::sqrt(-2 * ExactLog(s) / s);
  }
}

// An exponential draw of mean 1.
inline double ExactExponential(KeyedRandom& random) { return -ExactLog(1 - random.UniformDouble()); }

// A Poisson draw (Knuth). REQUIRES: a mean up to 100.
inline int64_t ExactPoisson(KeyedRandom& random, double mean) {
  const double limit = ExactExp(-mean);
  int64_t n = -1;
  for (double product = 1; product > limit; ++n) product *= 1 - random.UniformDouble();
  return n;
}

}  // namespace trainyard::mace

#endif  // TRAINYARD_TRAINER_TASK_MACE_SURVIVAL_EXACT_MATH_H_
