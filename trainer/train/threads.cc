#include "trainer/train/threads.h"

#include <ATen/Parallel.h>

#include <algorithm>
#include <cstdlib>

#include "trainer/base/cpus.h"
#include "trainer/base/environment.h"
#include "trainer/base/text.h"

namespace trainyard {

std::string ApplyThreads(const World& world) {
  constexpr char kVariable[] = "OMP_NUM_THREADS";
  if (const std::string text = EnvText(kVariable); !text.empty()) return text + " a rank (OMP_NUM_THREADS)";
  const Cpus& cpus = AvailableCpus();
  const int threads = std::max(1, cpus.count / world.local_size);
  setenv(kVariable, std::to_string(threads).c_str(), 1);
  at::set_num_threads(threads);
  return Format("%d a rank: %s, %d rank%s on this node", threads, cpus.why.c_str(), world.local_size,
                world.local_size == 1 ? "" : "s");
}

}  // namespace trainyard
