// AdamW over the flat buffers, in ranges of equal rate and decay.
#ifndef TRAINYARD_TRAINER_OPTIM_ADAMW_H_
#define TRAINYARD_TRAINER_OPTIM_ADAMW_H_

#include <cstdint>
#include <vector>

#include "trainer/config/config.h"
#include "trainer/parallel/flat_state.h"

namespace trainyard {

class AdamW {
 public:
  // Assigns every parameter to its group: of optim.groups, the first whose pattern matches.
  AdamW(const OptimConfig& config, FlatState& state);

  // Updates master and moments from state.gradient x grad_scale. `step` counts from 1 and is the
  // number of this update (skipped steps are not counted); `lr` is the schedule's rate.
  void Step(int64_t step, double lr, float grad_scale);

 private:
  struct Group {
    Range range;  // multiples of 64
    double lr, weight_decay;
  };
  const OptimConfig config_;
  FlatState& state_;
  std::vector<Group> groups_;
};

// Throws ConfigError for a pattern of optim.groups that takes no parameter.
void RequireMatchingGroups(const OptimConfig& config, const std::vector<ParameterSpec>& parameters);

}  // namespace trainyard

#endif  // TRAINYARD_TRAINER_OPTIM_ADAMW_H_
