// How many processors this process may really use: of the machine, what its affinity and its cgroup
// leave. A pod with a limit of 2 CPUs on a machine of 64 must not start 64 threads.
#ifndef TRAINYARD_COMMON_CPUS_H_
#define TRAINYARD_COMMON_CPUS_H_

#include <filesystem>
#include <optional>
#include <string>

namespace trainyard {

struct Cpus {
  int count = 1;    // at least 1
  std::string why;  // "1.5 CPUs of the cgroup's quota", "2 CPUs of the machine"
  // What it is the smallest of; nothing where there is no such limit.
  int machine = 1, affinity = 1;
  std::optional<int> cpuset = {};
  std::optional<double> quota = {};
};

// The smallest of: processors of the affinity mask (which a container's cpuset narrows as well), the
// cgroup's cpuset, and the quota of the cgroup or of one above it (v1 and v2). A quota is rounded to
// the nearest whole number: with 1.5 CPUs two threads run three quarters of the time and together
// get all of it, one thread would leave a third unused; with 1.2 the second thread would mostly hold
// up the first. What cannot be read is no limit. Constant while the process lives: asked once.
const Cpus& AvailableCpus();

// The same for a file system under `root` (proc/self/{cgroup,mountinfo} and what they name), and
// `allowed` processors of the affinity mask.
Cpus CountCpus(const std::filesystem::path& root, int allowed);

}  // namespace trainyard

#endif  // TRAINYARD_COMMON_CPUS_H_
