#include "trainer/launch/preflight.h"

#include <sys/resource.h>

#include <algorithm>
#include <string>

#include "common/cpus.h"
#include "trainer/base/environment.h"
#include "trainer/base/error.h"
#include "trainer/base/file.h"
#include "trainer/base/text.h"

namespace trainyard {

void RequireSensibleRanks(int ranks, const std::string& field) {
  const Cpus& cpus = AvailableCpus();
  const int most = std::max(16, 8 * cpus.count);
  if (ranks > most)
    throw ConfigError(Format("%s: %d ranks are too many for this node; at most %d, eight a CPU (%s)", field.c_str(),
                             ranks, most, cpus.why.c_str()));
}

void RequireSensible(const NodeWorld& world) {
  RequireSensibleRanks(world.procs, "--nproc (PET_NPROC_PER_NODE)");
  // With fewer something fails somewhere, with whatever it makes of that.
  constexpr rlim_t kFiles = 40;
  rlimit files{};
  if (getrlimit(RLIMIT_NOFILE, &files) == 0 && files.rlim_cur < kFiles)
    throw ConfigError(Format("ulimit -n: %llu open files are not enough for ranks; at least %llu",
                             static_cast<unsigned long long>(files.rlim_cur), static_cast<unsigned long long>(kFiles)));
}

void RequireRereadable(const std::string& path) {
  const fs::path file = ResolveVolume(path.empty() ? EnvText("TRAINYARD_CONFIG") : path);
  std::error_code ignored;
  const fs::file_type type = fs::status(file, ignored).type();
  if (type != fs::file_type::fifo && type != fs::file_type::socket) return;
  throw ConfigError(Format(
      "--config: %s is a pipe, and every rank reads the configuration once more: write it to a file and name that",
      file.c_str()));
}

}  // namespace trainyard
