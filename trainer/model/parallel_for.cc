#include "trainer/model/parallel_for.h"

#include <ATen/Parallel.h>

#ifndef INTRA_OP_PARALLEL
#error "at::parallel_for is serial here: this file needs -fopenmp"
#endif

namespace trainyard {

void ParallelFor(int64_t begin, int64_t end, int64_t least, const std::function<void(int64_t, int64_t)>& run) {
  at::parallel_for(begin, end, least, run);
}

}  // namespace trainyard
