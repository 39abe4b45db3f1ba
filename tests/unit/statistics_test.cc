#include "trainer/base/statistics.h"

#include <gtest/gtest.h>

#include <cmath>
#include <utility>
#include <vector>

namespace trainyard {
namespace {

TEST(Statistics, StudentsQuantiles) {
  // mpmath, 30 digits: where the regularized incomplete beta function is 0.95.
  const std::pair<int64_t, double> known[] = {
      {1, 12.7062047361747046},   {2, 4.30265272974946385},    {3, 3.18244630528370960},   {4, 2.77644510519779436},
      {5, 2.57058183563631551},   {9, 2.26215716279820554},    {10, 2.22813885198627475},  {15, 2.13144954555977568},
      {29, 2.04522964213270429},  {30, 2.04227245630123831},   {31, 2.03951344639640849},  {100, 1.98397151852355229},
      {119, 1.98009987645693989}, {1000, 1.96233908082640848}, {4095, 1.96054346210723716}};
  for (const auto& [degrees, t] : known) EXPECT_NEAR(StudentT95(degrees), t, 1e-12 * t) << degrees;
}

TEST(Statistics, MeansAndTheirErrors) {
  const std::vector<double> values = {1, 2, 3, 6};
  const MeanEstimate estimate = EstimateMean(values);
  EXPECT_DOUBLE_EQ(estimate.mean, 3);
  EXPECT_DOUBLE_EQ(*estimate.standard_error, std::sqrt(14.0 / 3 / 4));
  EXPECT_DOUBLE_EQ(*estimate.half95, StudentT95(3) * *estimate.standard_error);
  EXPECT_FALSE(EstimateMean(std::vector<double>{4}).half95);
  EXPECT_EQ(*EstimateMean(std::vector<double>{4, 4}).half95, 0);
}

}  // namespace
}  // namespace trainyard
