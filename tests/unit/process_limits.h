// A process that the kernel gives no more memory. For one of its own: a limit stays.
#ifndef TRAINYARD_TESTS_UNIT_PROCESS_LIMITS_H_
#define TRAINYARD_TESTS_UNIT_PROCESS_LIMITS_H_

#include <gtest/gtest.h>
#include <sys/resource.h>

#include <cstddef>
#include <fstream>
#include <string>

namespace trainyard {

// From here on no more than `bytes` beside what this process has that is private and can be written to (RLIMIT_DATA, of
// mappings since Linux 4.7).
inline void LimitWritable(size_t bytes) {
  std::ifstream status("/proc/self/status");
  size_t kib = 0;
  for (std::string word; status >> word;) {
    if (word == "VmData:") status >> kib;
  }
  const rlimit writable{kib * 1024 + bytes, kib * 1024 + bytes};
  ASSERT_EQ(setrlimit(RLIMIT_DATA, &writable), 0);
}

// As a shell's `ulimit -v`; far above what this process has.
inline void LimitAddresses() {
  const rlimit addresses{size_t{1} << 40, size_t{1} << 40};
  ASSERT_EQ(setrlimit(RLIMIT_AS, &addresses), 0);
}

}  // namespace trainyard

#endif  // TRAINYARD_TESTS_UNIT_PROCESS_LIMITS_H_
