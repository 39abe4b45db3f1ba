#include "trainer/train/threads.h"

#include <ATen/Parallel.h>

#include <algorithm>
#include <cstdlib>

#include "common/cpus.h"
#include "trainer/base/environment.h"
#include "trainer/base/text.h"
#include "trainer/model/math_functions.h"

namespace trainyard {

std::string ApplyThreads(const World& world) {
  constexpr char kVariable[] = "OMP_NUM_THREADS";
  ResolveMathFunctions();
  if (const std::string text = EnvText(kVariable); !text.empty()) return text + " a rank (OMP_NUM_THREADS)";
  const Cpus& cpus = AvailableCpus();
  const int threads = std::max(1, cpus.count / world.local_size);
  setenv(kVariable, std::to_string(threads).c_str(), 1);
  at::set_num_threads(threads);
  return Format("%d a rank: %s, %d rank%s on this node", threads, cpus.why.c_str(), world.local_size,
                world.local_size == 1 ? "" : "s");
}

ThreadCount LoaderThreads(const OptionalInt& workers, const Cpus& cpus, int ranks_here) {
  if (workers) return {static_cast<int>(*workers), Format("%d a rank (data.workers)", static_cast<int>(*workers))};
  const int count = std::clamp((cpus.count - 2) / ranks_here, 1, 3);
  return {count, Format("%d a rank: 1 to 3 of %s less 2, %d rank%s on this node", count, cpus.why.c_str(), ranks_here,
                        ranks_here == 1 ? "" : "s")};
}

}  // namespace trainyard
