// How many threads a rank computes with, and how many read its samples.
#ifndef TRAINYARD_TRAINER_TRAIN_THREADS_H_
#define TRAINYARD_TRAINER_TRAIN_THREADS_H_

#include <string>

#include "common/cpus.h"
#include "trainer/config/field_table.h"
#include "trainer/launch/world.h"

namespace trainyard {

// OMP_NUM_THREADS where it is set; else this rank's part of the CPUs that the process may use
// (common/cpus.h), at least 1: then LibTorch is told, and OMP_NUM_THREADS is set for what reads it
// later; and makes what computes safe for several threads (model/math_functions.h). Call before anything computes.
// Returns the number and why, for the banner. Throws ConfigError when OMP_NUM_THREADS is not what OpenMP reads.
std::string ApplyThreads(const World& world);

struct ThreadCount {
  int count = 1;
  std::string why;  // with the number, for the banner
};

// Of a rank's loader: `workers` (data.workers) where it is set; else its part of the CPUs but two, which are left to
// what computes and to the system: at least 1, at most 3.
ThreadCount LoaderThreads(const OptionalInt& workers, const Cpus& cpus, int ranks_here);

}  // namespace trainyard

#endif  // TRAINYARD_TRAINER_TRAIN_THREADS_H_
