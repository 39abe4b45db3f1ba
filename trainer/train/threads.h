// How many threads a rank computes with, and how many read its samples.
#ifndef TRAINYARD_TRAINER_TRAIN_THREADS_H_
#define TRAINYARD_TRAINER_TRAIN_THREADS_H_

#include <string>

#include "common/cpus.h"
#include "trainer/config/field_table.h"

namespace trainyard {

struct ThreadCount {
  int count = 1;
  std::string why;  // for people
};

// Of a rank: OMP_NUM_THREADS, of which `omp_num_threads` is the text, where it is set; else its part of the CPUs that
// the process may use (common/cpus.h), at least 1. Throws ConfigError when OMP_NUM_THREADS is not what OpenMP reads.
ThreadCount ComputeThreads(const std::string& omp_num_threads, const Cpus& cpus, int ranks_here);

// Where OMP_NUM_THREADS is unset, LibTorch is told so many, and OMP_NUM_THREADS is set for what reads it later; and
// makes what computes safe for several threads (model/math_functions.h). Call before anything computes.
void ApplyThreads(int threads);

// Of a rank's loader: `workers` (data.workers) where it is set; else its part of the CPUs but two, which are left to
// what computes and to the system: at least 1, at most 3.
ThreadCount LoaderThreads(const OptionalInt& workers, const Cpus& cpus, int ranks_here);

}  // namespace trainyard

#endif  // TRAINYARD_TRAINER_TRAIN_THREADS_H_
