#include "trainer/device/tensor_memory.h"

#include <c10/core/CPUAllocator.h>

#include <new>

#include "trainer/base/clock.h"
#include "trainer/base/page_pool.h"

namespace trainyard {
namespace {

PagePool* pool = nullptr;  // a deleter is a function alone; tensors may outlive main

// Also for what Allocator::raw_allocate() has taken from LibTorch's own.
void Release(void* data) {
  if (!pool->Owns(data)) return c10::GetDefaultCPUAllocator()->raw_deallocate(data);
  c10::profiledCPUMemoryReporter().Delete(data);
  pool->Release(data);
}

// null where LibTorch's own allocator is to be asked.
void* Block(size_t bytes) {
  try {
    return bytes < kLeastPooledBytes ? nullptr : pool->Allocate(bytes);
  } catch (const std::bad_alloc&) {
    return nullptr;
  }
}

class Pooled : public c10::Allocator {
 public:
  c10::DataPtr allocate(size_t bytes) override {
    void* data = Block(bytes);
    if (data == nullptr) return c10::GetDefaultCPUAllocator()->allocate(bytes);
    c10::profiledCPUMemoryReporter().New(data, bytes);
    return {data, data, &Release, c10::Device(c10::kCPU)};
  }
  c10::DeleterFnPtr raw_deleter() const override { return &Release; }
  void copy_data(void* to, const void* from, size_t bytes) const override { default_copy_data(to, from, bytes); }
};

}  // namespace

bool PoolTensors(size_t most_bytes) {
  if (pool != nullptr) return true;
  pool = PagePool::Reserve(most_bytes, SteadySeconds).release();
  if (pool == nullptr) return false;
  c10::SetCPUAllocator(new Pooled, 1);
  return true;
}

}  // namespace trainyard
