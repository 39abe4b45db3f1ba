// Loops over the threads of a rank.
#ifndef TRAINYARD_TRAINER_THREADS_PARALLEL_FOR_H_
#define TRAINYARD_TRAINER_THREADS_PARALLEL_FOR_H_

#include <cstdint>
#include <functional>

namespace trainyard {

// Calls `run` for parts of [begin, end) that cover it once, on as many of LibTorch's threads as there are pieces of
// `least` indices, and returns when all have ended; one of their exceptions is thrown. Inside such a loop, and with one
// thread: one call with the whole. Where the cuts lie depends on the number of threads: no sum may depend on them.
//
// Use this and not at::parallel_for: that one is a template, and silently serial in a file that is compiled without
// OpenMP.
void ParallelFor(int64_t begin, int64_t end, int64_t least, const std::function<void(int64_t begin, int64_t end)>& run);

// Calls `run` once for every block of so many indices of [0, size), the last one shorter, each computed by one thread
// alone, without recording gradients, in the caller's inference mode. Where the cuts lie does not depend on the number
// of threads: sums may.
void ParallelBlocks(int64_t size, int64_t block, const std::function<void(int64_t begin, int64_t size)>& run);

// While it lives, what this thread asks of MKL and oneDNN is computed by this thread alone. Inside a parallel loop too:
// MKL would cut a sum for as many threads as it was told of, whether it gets them or not, and a loop of one piece is no
// parallel region to them. And in a thread beside the step's: where a process has more OpenMP threads than CPUs,
// libgomp lets none of them stay awake for the next loop, so that a second team makes each loop of the step's begin
// with a wake.
class OneLibraryThread {
 public:
  OneLibraryThread();
  ~OneLibraryThread();
  OneLibraryThread(const OneLibraryThread&) = delete;
  OneLibraryThread& operator=(const OneLibraryThread&) = delete;

 private:
  int mkl_before_ = 0, openmp_before_ = 0;
};

}  // namespace trainyard

#endif  // TRAINYARD_TRAINER_THREADS_PARALLEL_FOR_H_
