#include "trainer/launch/preflight.h"

#include <algorithm>

#include "common/cpus.h"
#include "trainer/base/error.h"
#include "trainer/base/text.h"

namespace trainyard {

void RequireSensible(const NodeWorld& world) {
  const Cpus& cpus = AvailableCpus();
  const int most = std::max(16, 8 * cpus.count);
  if (world.procs > most)
    throw ConfigError(
        Format("--nproc (PET_NPROC_PER_NODE): %d ranks are too many for this node; at most %d, eight a "
               "CPU (%s)",
               world.procs, most, cpus.why.c_str()));
}

}  // namespace trainyard
