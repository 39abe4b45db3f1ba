// A function that changes at some times and is constant in between.
#ifndef TRAINYARD_TRAINER_TASK_MACE_SURVIVAL_STEP_FUNCTION_H_
#define TRAINYARD_TRAINER_TASK_MACE_SURVIVAL_STEP_FUNCTION_H_

#include <algorithm>
#include <vector>

namespace trainyard::mace {

struct StepFunction {
  double before = 0;           // the first time
  std::vector<double> times;   // ascending
  std::vector<double> values;  // from each of them on

  double At(double time) const {
    const auto next = std::upper_bound(times.begin(), times.end(), time);
    return next == times.begin() ? before : values[static_cast<size_t>(next - times.begin()) - 1];
  }
};

}  // namespace trainyard::mace

#endif  // TRAINYARD_TRAINER_TASK_MACE_SURVIVAL_STEP_FUNCTION_H_
