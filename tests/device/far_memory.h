// The memory of far devices.
#ifndef TRAINYARD_TESTS_DEVICE_FAR_MEMORY_H_
#define TRAINYARD_TESTS_DEVICE_FAR_MEMORY_H_

#include <cstddef>

namespace trainyard {

void* TakeFarMemory(size_t bytes);
void ReturnFarMemory(void* memory);

// While one lives, on any thread, far memory can be touched.
class FarMemoryOpen {
 public:
  FarMemoryOpen();
  ~FarMemoryOpen();
  FarMemoryOpen(const FarMemoryOpen&) = delete;
  FarMemoryOpen& operator=(const FarMemoryOpen&) = delete;
};

}  // namespace trainyard

#endif  // TRAINYARD_TESTS_DEVICE_FAR_MEMORY_H_
