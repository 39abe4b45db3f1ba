// Tensors in the pool, and those that are not. Each test is a process of its own, since LibTorch's allocator is one.
#include "trainer/device/tensor_memory.h"

#include <ATen/TensorOperators.h>
#include <ATen/core/Tensor.h>
#include <ATen/ops/empty.h>
#include <c10/core/CPUAllocator.h>
#include <gtest/gtest.h>

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <memory>

#include "tests/unit/process_limits.h"
#include "tests/unit/tensor_meter.h"

namespace trainyard {
namespace {

constexpr int64_t kMiB = 1 << 20;
constexpr size_t kMost = size_t{4096} << 20;

at::Tensor Bytes(int64_t bytes) { return at::empty({bytes}, at::kByte); }
// Since there is a pool.
bool IsPooled(const at::Tensor& tensor) {
  return tensor.storage().data_ptr().get_deleter() == c10::GetCPUAllocator()->raw_deleter();
}

void InAProcess(const std::function<void()>& look) {
  const auto run = [&] {
    look();
    std::fflush(stdout);
    std::_Exit(testing::Test::HasFailure() ? 1 : 0);
  };
  EXPECT_EXIT(run(), testing::ExitedWithCode(0), "");
}

TEST(TensorMemoryDeathTest, WhatIsLargeIsPooled) {
  InAProcess([] {
    at::Tensor before = Bytes(kMiB);
    ASSERT_TRUE(PoolTensors(kMost));
    const c10::Allocator* pooled = c10::GetCPUAllocator();
    EXPECT_TRUE(PoolTensors(kMost));
    EXPECT_EQ(c10::GetCPUAllocator(), pooled) << "once is enough";
    EXPECT_TRUE(IsPooled(Bytes(kLeastPooledBytes)));
    EXPECT_FALSE(IsPooled(Bytes(kLeastPooledBytes - 1)));
    EXPECT_EQ(Bytes(0).nbytes(), 0u);
    at::Tensor since = Bytes(kMiB);
    for (at::Tensor* tensor : {&before, &since}) {
      tensor->fill_(7);
      tensor->resize_({2 * kMiB});  // its storage asks the allocator that it has
      EXPECT_TRUE((tensor->slice(0, 0, kMiB) == 7).all().item<bool>()) << "it moves with what it holds";
    }
    EXPECT_FALSE(IsPooled(before));
    EXPECT_TRUE(IsPooled(since));
  });
}

TEST(TensorMemoryDeathTest, RawMemoryGoesBackWhereItCameFrom) {
  InAProcess([] {
    ASSERT_TRUE(PoolTensors(kMost));
    for (const size_t bytes : {size_t{1}, kLeastPooledBytes}) {
      void* raw = c10::GetCPUAllocator()->raw_allocate(bytes);
      std::memset(raw, 1, bytes);
      c10::GetCPUAllocator()->raw_deallocate(raw);
    }
  });
}

TEST(TensorMemoryDeathTest, LibTorchsProfilerSeesIt) {
  InAProcess([] {
    ASSERT_TRUE(PoolTensors(kMost));
    const auto meter = std::make_shared<TensorMeter>();
    const c10::DebugInfoGuard guard(c10::DebugInfoKind::PROFILER_STATE, meter);
    at::Tensor large = Bytes(3 * kMiB), small = Bytes(100);
    EXPECT_EQ(meter->now, 3 * kMiB + 100);
    large.reset();
    EXPECT_EQ(meter->now, 100);
  });
}

TEST(TensorMemoryDeathTest, WithoutMemoryThereIsLibTorchsError) {
  InAProcess([] {
    ASSERT_TRUE(PoolTensors(kMost));
    LimitWritable(256 * kMiB);
    EXPECT_THROW(Bytes(1024 * kMiB), c10::Error);
    EXPECT_THROW(Bytes(int64_t{1} << 50), c10::Error);
    EXPECT_TRUE(IsPooled(Bytes(kMiB)));
  });
}

TEST(TensorMemoryDeathTest, WhereAddressesAreLimitedTensorsLieWhereTheyDid) {
  InAProcess([] {
    LimitAddresses();
    const c10::Allocator* own = c10::GetCPUAllocator();
    EXPECT_FALSE(PoolTensors(kMost));
    EXPECT_EQ(c10::GetCPUAllocator(), own);
  });
}

}  // namespace
}  // namespace trainyard
