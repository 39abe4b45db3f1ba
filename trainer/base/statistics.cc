#include "trainer/base/statistics.h"

#include <cmath>
#include <numbers>

namespace trainyard {
namespace {

// P(|T| < t), as a finite sum for a whole number of degrees: Abramowitz and Stegun 26.7.3 and 26.7.4.
double ProbabilityWithin(double t, int64_t degrees) {
  const double angle = std::atan(t / std::sqrt(static_cast<double>(degrees)));
  const double cosine = std::cos(angle), sine = std::sin(angle);
  const bool odd = degrees % 2 == 1;
  double term = odd ? cosine : 1, sum = degrees == 1 ? 0 : term;
  for (int64_t k = odd ? 3 : 2; k < degrees; k += 2) {
    term *= cosine * cosine * static_cast<double>(k - 1) / static_cast<double>(k);
    sum += term;
  }
  return odd ? (angle + sine * sum) * 2 / std::numbers::pi : sine * sum;
}

}  // namespace

double StudentT95(int64_t degrees) {
  double low = 1.9, high = 13;  // the limit for many degrees is 1.96, the value for one is 12.7
  while (high - low > 1e-13 * low) {
    const double middle = (low + high) / 2;
    if (middle <= low || middle >= high) break;
    (ProbabilityWithin(middle, degrees) < 0.95 ? low : high) = middle;
  }
  return (low + high) / 2;
}

MeanEstimate EstimateMean(std::span<const double> values) {
  const auto n = static_cast<double>(values.size());
  double sum = 0, square = 0;
  for (double x : values) sum += x;
  const double mean = sum / n;
  if (values.size() < 2) return {mean, std::nullopt, std::nullopt};
  for (double x : values) square += (x - mean) * (x - mean);
  const double error = std::sqrt(square / (n - 1) / n);
  return {mean, error, StudentT95(static_cast<int64_t>(values.size()) - 1) * error};
}

}  // namespace trainyard
