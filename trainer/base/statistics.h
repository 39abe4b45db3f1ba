// Confidence intervals of means.
#ifndef TRAINYARD_TRAINER_BASE_STATISTICS_H_
#define TRAINYARD_TRAINER_BASE_STATISTICS_H_

#include <cstdint>
#include <optional>
#include <span>

namespace trainyard {

// What |T| of Student's distribution stays below with 95 %, T of so many degrees of freedom. From the
// closed form of its distribution function: relative error below 1e-12. REQUIRES: degrees >= 1. Takes
// time proportional to it.
double StudentT95(int64_t degrees);

struct MeanEstimate {
  double mean;
  // Absent for a single value: nothing is known about the spread then.
  std::optional<double> standard_error;
  std::optional<double> half95;  // mean +- half95 covers the true mean with 95 %, for normal values
};

// REQUIRES: the values are independent draws, at least one. Values that share a history, such as the
// episodes of one play, are not: then the interval is far too narrow.
MeanEstimate EstimateMean(std::span<const double> values);

}  // namespace trainyard

#endif  // TRAINYARD_TRAINER_BASE_STATISTICS_H_
