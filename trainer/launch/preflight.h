// What a launcher refuses before it starts a rank.
#ifndef TRAINYARD_TRAINER_LAUNCH_PREFLIGHT_H_
#define TRAINYARD_TRAINER_LAUNCH_PREFLIGHT_H_

#include "trainer/launch/world.h"

namespace trainyard {

// Throws ConfigError when there are more ranks than the node's CPUs can mean: eight a CPU, and at
// least 16.
void RequireSensible(const NodeWorld& world);

}  // namespace trainyard

#endif  // TRAINYARD_TRAINER_LAUNCH_PREFLIGHT_H_
