// A process that the kernel gives no more memory.
#ifndef TRAINYARD_TESTS_UNIT_LIMIT_WRITABLE_H_
#define TRAINYARD_TESTS_UNIT_LIMIT_WRITABLE_H_

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

}  // namespace trainyard

#endif  // TRAINYARD_TESTS_UNIT_LIMIT_WRITABLE_H_
