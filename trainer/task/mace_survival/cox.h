// Cox's proportional hazards: the partial likelihood with Breslow's treatment of ties, and the baseline hazard that
// belongs to it (Breslow, discussion of Cox 1972; Kalbfleisch and Prentice, 4.3). Plain numbers in float64.
#ifndef TRAINYARD_TRAINER_TASK_MACE_SURVIVAL_COX_H_
#define TRAINYARD_TRAINER_TASK_MACE_SURVIVAL_COX_H_

#include <cstdint>
#include <span>
#include <vector>

#include "trainer/task/mace_survival/step_function.h"

namespace trainyard::mace {

// One subject: it was seen until `time`, and had the event then or was censored.
struct Outcome {
  double time = 0;
  bool event = false;
};

struct CoxLoss {
  double sum = 0;                // over the events of `mine`: log of the risk set's sum of exp(risk), less the own risk
  std::vector<double> gradient;  // of `sum` with respect to every risk
};

// The negative log partial likelihood, not divided by anything. The risk set of an event holds everyone whose time is
// not earlier, tied ones included; they share it. `mine`: whose events count; empty means everyone's. Parts over
// disjoint `mine` add up to the whole, and so do their gradients. 0 without events. Sums of exponentials are kept as
// logarithms, so that no finite risk overflows. O(n log n).
// REQUIRES: as many risks as outcomes; no number is a NaN.
CoxLoss CoxPartialLikelihood(std::span<const double> risk, std::span<const Outcome> outcomes,
                             std::span<const uint8_t> mine = {});

// Cumulative baseline hazard H0, from those whom the risks were fitted to: the survival of someone with risk r is
// exp(-H0(t) exp(r)). 0 before the first event; constant behind the last one.
StepFunction BreslowBaseline(std::span<const double> risk, std::span<const Outcome> outcomes);

}  // namespace trainyard::mace

#endif  // TRAINYARD_TRAINER_TASK_MACE_SURVIVAL_COX_H_
