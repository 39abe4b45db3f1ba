// What a launcher refuses before it starts a rank.
#ifndef TRAINYARD_TRAINER_LAUNCH_PREFLIGHT_H_
#define TRAINYARD_TRAINER_LAUNCH_PREFLIGHT_H_

#include <string>

#include "trainer/launch/world.h"

namespace trainyard {

// Throws ConfigError when there are more ranks than a node's CPUs can mean: eight a CPU, and at least 16. `field`:
// where their number was given.
void RequireSensibleRanks(int ranks, const std::string& field);
// The same for a launcher's, and when there are fewer open files than ranks need (ulimit -n).
void RequireSensible(const NodeWorld& world);

// Throws ConfigError for a configuration that is a pipe or a socket: the launcher and each rank read it, and what comes
// from there comes once. `path`: --config; empty: TRAINYARD_CONFIG. What is not there is left to who reads it.
void RequireRereadable(const std::string& path);

}  // namespace trainyard

#endif  // TRAINYARD_TRAINER_LAUNCH_PREFLIGHT_H_
