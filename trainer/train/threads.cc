#include "trainer/train/threads.h"

#include <ATen/Parallel.h>

#include <algorithm>
#include <charconv>
#include <cstdlib>
#include <system_error>

#include "common/cpus.h"
#include "trainer/base/environment.h"
#include "trainer/base/error.h"
#include "trainer/base/text.h"
#include "trainer/model/math_functions.h"

namespace trainyard {
namespace {

constexpr char kVariable[] = "OMP_NUM_THREADS";
constexpr int kMostThreads = 4096;  // more than any machine has CPUs

// A number, or OpenMP's list of one for each level of nesting. What else it may be, its library passes over, and takes
// every CPU.
void RequireThreads(const std::string& text) {
  for (const std::string& level : Split(text, ',')) {
    int threads = 0;
    const auto [end, error] = std::from_chars(level.data(), level.data() + level.size(), threads);
    if (error == std::errc() && end == level.data() + level.size() && threads >= 1 && threads <= kMostThreads) continue;
    throw ConfigError(Format("%s: %s is not allowed; expected an integer from 1 to %d, or several with commas",
                             kVariable, text.c_str(), kMostThreads));
  }
}

}  // namespace

std::string ApplyThreads(const World& world) {
  ResolveMathFunctions();
  if (const std::string text = EnvText(kVariable); !text.empty()) {
    RequireThreads(text);
    return text + " a rank (OMP_NUM_THREADS)";
  }
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
