// How many threads a rank computes with.
#ifndef TRAINYARD_TRAINER_TRAIN_THREADS_H_
#define TRAINYARD_TRAINER_TRAIN_THREADS_H_

#include <string>

#include "trainer/launch/world.h"

namespace trainyard {

// OMP_NUM_THREADS where it is set; else this rank's part of the CPUs that the process may use
// (base/cpus.h), at least 1: then LibTorch is told, and OMP_NUM_THREADS is set for what reads it
// later. Call before anything computes. Returns the number and why, for the banner.
std::string ApplyThreads(const World& world);

}  // namespace trainyard

#endif  // TRAINYARD_TRAINER_TRAIN_THREADS_H_
