// What the fields of a configuration say together.
#ifndef TRAINYARD_TRAINER_CONFIG_RELATIONS_H_
#define TRAINYARD_TRAINER_CONFIG_RELATIONS_H_

#include <cstdint>
#include <string>
#include <vector>

#include "trainer/config/config.h"

namespace trainyard {

// Throws ConfigError for fields that cannot hold together, and for a metric to watch that the task does not declare,
// each on a line of its own. REQUIRES: the task's options are there.
void CheckRelations(const Config& config);

// What is allowed, does nothing or not what it seems to say, and would otherwise pass in silence: one
// line each, for people. `total_steps`: of the run.
std::vector<std::string> Doubts(const Config& config, int64_t total_steps);

}  // namespace trainyard

#endif  // TRAINYARD_TRAINER_CONFIG_RELATIONS_H_
