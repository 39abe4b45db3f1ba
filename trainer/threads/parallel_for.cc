#include "trainer/threads/parallel_for.h"

#include <ATen/Parallel.h>
#include <ATen/core/grad_mode.h>
#include <c10/core/InferenceMode.h>
#include <omp.h>

#include <algorithm>

// From MKL, of which LibTorch holds a copy on x86-64; returns what was set before, 0 for the default.
extern "C" int MKL_Set_Num_Threads_Local(int) __attribute__((weak));

#ifndef INTRA_OP_PARALLEL
#error "at::parallel_for is serial here: this file needs -fopenmp"
#endif

namespace trainyard {

void ParallelFor(int64_t begin, int64_t end, int64_t least, const std::function<void(int64_t, int64_t)>& run) {
  at::parallel_for(begin, end, least, run);
}

void ParallelBlocks(int64_t size, int64_t block, const std::function<void(int64_t, int64_t)>& run) {
  // Properties of a thread, both; what was made in inference mode may be written to in that mode alone.
  const bool inference = c10::InferenceMode::is_enabled();
  ParallelFor(0, (size + block - 1) / block, 1, [&](int64_t first, int64_t last) {
    const c10::InferenceMode mode(inference);
    const at::NoGradGuard no_grad;
    const OneLibraryThread one_thread;
    for (int64_t i = first; i < last; ++i) run(i * block, std::min(block, size - i * block));
  });
}

OneLibraryThread::OneLibraryThread() {
  // The first question or operation of a thread sets both of its numbers to the process's: not behind these.
  (void)at::get_num_threads();
  if (MKL_Set_Num_Threads_Local) mkl_before_ = MKL_Set_Num_Threads_Local(1);
  openmp_before_ = omp_get_max_threads();
  omp_set_num_threads(1);  // of this thread's own loops: where oneDNN takes its number from
}

OneLibraryThread::~OneLibraryThread() {
  omp_set_num_threads(openmp_before_);
  if (MKL_Set_Num_Threads_Local) MKL_Set_Num_Threads_Local(mkl_before_);
}

}  // namespace trainyard
