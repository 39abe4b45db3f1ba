// How the optimizer's groups lie in the flat layout.
#ifndef TRAINYARD_TRAINER_PARALLEL_UPDATE_RANGES_H_
#define TRAINYARD_TRAINER_PARALLEL_UPDATE_RANGES_H_

#include <vector>

#include "trainer/config/config.h"
#include "trainer/optim/adamw.h"
#include "trainer/parallel/flat_layout.h"

namespace trainyard {

// The whole layout, padding included, in its order: every parameter with the rate and decay of its group, which is the
// first of optim.groups whose pattern matches, or that of the rest. Neighbours of equal ones are one range.
std::vector<UpdateRange> UpdateRanges(const OptimConfig& config, const FlatLayout& layout);

// Throws ConfigError for a pattern of optim.groups that takes no parameter.
void RequireMatchingGroups(const OptimConfig& config, const std::vector<ParameterSpec>& parameters);

}  // namespace trainyard

#endif  // TRAINYARD_TRAINER_PARALLEL_UPDATE_RANGES_H_
