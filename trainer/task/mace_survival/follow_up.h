// Who of a made-up cohort has the event, and when: proportional hazards with a known log-risk.
#ifndef TRAINYARD_TRAINER_TASK_MACE_SURVIVAL_FOLLOW_UP_H_
#define TRAINYARD_TRAINER_TASK_MACE_SURVIVAL_FOLLOW_UP_H_

#include <cstdint>
#include <vector>

#include "trainer/task/mace_survival/cox.h"
#include "trainer/task/mace_survival/phantom.h"

namespace trainyard::mace {

struct FollowUp {
  std::vector<double> log_risk;
  std::vector<Outcome> outcomes;  // whole days
  std::vector<uint8_t> train;     // four in five
};

// The log-risk is a weighted sum of log(1 + Agatston score), lesions, calcified arteries, age and sex, each
// standardised over the cohort, scaled to a deviation of 1.25. Times to the event are exponential at the rate h0
// exp(log-risk), those to censoring uniform from 34 to 2,447 days, and h0 is such that a share of `event_rate` has the
// event. A pure function of the arguments, the same bytes on every machine. REQUIRES: two subjects or more.
FollowUp Follow(const std::vector<Phantom>& subjects, double event_rate, uint64_t seed);

}  // namespace trainyard::mace

#endif  // TRAINYARD_TRAINER_TASK_MACE_SURVIVAL_FOLLOW_UP_H_
