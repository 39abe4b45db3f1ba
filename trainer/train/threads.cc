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

ThreadCount ComputeThreads(const std::string& omp_num_threads, const Cpus& cpus, int ranks_here) {
  if (!omp_num_threads.empty()) {
    RequireThreads(omp_num_threads);
    return {std::atoi(omp_num_threads.c_str()), std::string(kVariable) + " is " + omp_num_threads};
  }
  return {std::max(1, cpus.count / ranks_here),
          Format("%s, %d rank%s on this node", cpus.why.c_str(), ranks_here, ranks_here == 1 ? "" : "s")};
}

void ApplyThreads(int threads) {
  ResolveMathFunctions();
  if (!EnvText(kVariable).empty()) return;
  setenv(kVariable, std::to_string(threads).c_str(), 1);
  at::set_num_threads(threads);
}

ThreadCount LoaderThreads(const OptionalInt& workers, const Cpus& cpus, int ranks_here) {
  if (workers) return {static_cast<int>(*workers), ""};
  const int count = std::clamp((cpus.count - 2) / ranks_here, 1, 3);
  return {count, Format("1 to 3 a rank of %s less 2, %d rank%s on this node", cpus.why.c_str(), ranks_here,
                        ranks_here == 1 ? "" : "s")};
}

}  // namespace trainyard
