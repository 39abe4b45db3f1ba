// What LibTorch's allocator says of one thread.
#ifndef TRAINYARD_TESTS_UNIT_TENSOR_METER_H_
#define TRAINYARD_TESTS_UNIT_TENSOR_METER_H_

#include <c10/core/Allocator.h>
#include <c10/util/ThreadLocalDebugInfo.h>

#include <algorithm>
#include <cstdint>

namespace trainyard {

// The bytes of tensors that a thread has made and not released since this is its DebugInfoKind::PROFILER_STATE, and the
// most that they were.
struct TensorMeter : c10::MemoryReportingInfoBase {
  void reportMemoryUsage(void*, int64_t size, size_t, size_t, c10::Device) override {
    now += size;
    most = std::max(most, now);
  }
  bool memoryProfilingEnabled() const override { return true; }
  int64_t now = 0, most = 0;
};

}  // namespace trainyard

#endif  // TRAINYARD_TESTS_UNIT_TENSOR_METER_H_
