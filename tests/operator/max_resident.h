// What hostile input may cost: how much memory this process has had at once, and what a sanitizer adds.
#ifndef TRAINYARD_TESTS_OPERATOR_MAX_RESIDENT_H_
#define TRAINYARD_TESTS_OPERATOR_MAX_RESIDENT_H_

#include <sys/resource.h>

#include <cstdint>

namespace trainyard {

inline int64_t MaxResidentMiB() {
  rusage usage{};
  getrusage(RUSAGE_SELF, &usage);
  return usage.ru_maxrss / 1024;
}

// How many times a bound holds under a sanitizer, which keeps shadows of what is touched and, for a while, what was
// freed: 256 MiB of it under the address sanitizer, and five to ten times as much memory by the thread sanitizer's
// documentation.
#if defined(__SANITIZE_THREAD__) || defined(__SANITIZE_ADDRESS__)
inline constexpr int64_t kMemoryFactor = 5;
inline constexpr int64_t kTimeFactor = 15;  // of processor time: it documents five to fifteen
#else
inline constexpr int64_t kMemoryFactor = 1;
inline constexpr int64_t kTimeFactor = 1;
#endif

}  // namespace trainyard

#endif  // TRAINYARD_TESTS_OPERATOR_MAX_RESIDENT_H_
