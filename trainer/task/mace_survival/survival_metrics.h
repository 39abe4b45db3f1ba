// What predictions of risk and survival are worth, under censoring. Plain numbers in float64.
//
// A time is the subjects' unit, here days. What cannot be estimated is absent, never 0.
#ifndef TRAINYARD_TRAINER_TASK_MACE_SURVIVAL_SURVIVAL_METRICS_H_
#define TRAINYARD_TRAINER_TASK_MACE_SURVIVAL_SURVIVAL_METRICS_H_

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "trainer/task/mace_survival/cox.h"

namespace trainyard::mace {

// Pairs of which it is known who had the event first. Of two at one time it is known where one was censored then.
struct Concordance {
  int64_t comparable = 0;
  int64_t concordant = 0;  // the one with the earlier event has the higher risk
  int64_t tied = 0;        // equal risks count half

  std::optional<double> index() const;  // Harrell's C; absent without a comparable pair
};

// Harrell et al., JAMA 1982. O(n log n). REQUIRES: no risk is a NaN.
// `mine`: pairs count whose earlier event is of those; empty: everyone's.
Concordance CountPairs(std::span<const double> risk, std::span<const Outcome> outcomes,
                       std::span<const uint8_t> mine = {});

// The product-limit estimate of surviving without the event (Kaplan and Meier 1958).
StepFunction KaplanMeier(std::span<const Outcome> outcomes);
// The same of staying uncensored. Of those at one time, events come before censorings.
StepFunction CensoringDistribution(std::span<const Outcome> outcomes);

// Area under the curve of cumulative cases (event by `time`, weighted with 1 / G(their time)) against dynamic controls
// (seen beyond it); ties in risk count half (Uno et al., JASA 2007; Hung and Chiang 2010). Absent without cases or
// controls, and where G is 0 at a case's time.
std::optional<double> TimeDependentAuc(std::span<const double> risk, std::span<const Outcome> outcomes,
                                       const StepFunction& censoring, double time);

// The mean squared error of survival[i], the predicted probability that subject i survives `time`, weighted against
// censoring (Graf et al., Stat Med 1999). Who would need a weight of 1 / 0 counts 0, as in scikit-survival. Absent for
// nobody.
std::optional<double> BrierScore(std::span<const double> survival, std::span<const Outcome> outcomes,
                                 const StepFunction& censoring, double time);

// The mean of scores over [times.front(), times.back()], by trapezia. REQUIRES: two times or more, ascending.
double IntegratedScore(std::span<const double> times, std::span<const double> scores);

}  // namespace trainyard::mace

#endif  // TRAINYARD_TRAINER_TASK_MACE_SURVIVAL_SURVIVAL_METRICS_H_
