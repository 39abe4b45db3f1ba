#include "trainer/train/out_of_memory.h"

#include <gtest/gtest.h>

#include <new>

#include "trainer/base/error.h"

namespace trainyard {
namespace {

Plan PlanOf(int64_t global, int64_t micro) {
  Plan plan;
  plan.global_batch = global;
  plan.micro = micro;
  return plan;
}

// What a step that fails with `error` ends with.
template <typename E>
std::string MessageOf(const E& error, const Plan& plan, bool coupled = false) {
  try {
    std::rethrow_exception(NameWhatIsTooLarge(std::make_exception_ptr(error), plan, coupled, 7));
  } catch (const OutOfMemoryError& named) {
    return named.what();
  } catch (const std::exception& other) {
    return std::string("left alone: ") + other.what();
  }
}

TEST(OutOfMemory, AMicroBatchThatIsTooLargeIsNamedWithASmallerOne) {
  EXPECT_EQ(
      MessageOf(std::bad_alloc(), PlanOf(96, 48)),
      "out of memory in step 7; batch.micro is 48; batch.micro: 24 takes less, for the same training in more pieces");
  const std::runtime_error libtorchs(
      "[enforce fail at alloc_cpu.cpp:127] err == 0. DefaultCPUAllocator: can't allocate memory: you tried to allocate "
      "268435456 bytes. Error code 12 (Cannot allocate memory)\nframe #0");
  EXPECT_EQ(
      MessageOf(libtorchs, PlanOf(8, 1)),
      "out of memory: 256.0 MiB more could not be had in step 7; batch.micro is 1 already: choose a smaller model, or "
      "a machine with more memory");
  EXPECT_NE(MessageOf(std::bad_alloc(), PlanOf(96, 96), true).find("choose a smaller batch.global"), std::string::npos);
  EXPECT_EQ(MessageOf(DataError("cut"), PlanOf(96, 48)), "left alone: cut");
}

TEST(OutOfMemory, ASmallerMicroBatchDividesTheShareIfItCan) {
  EXPECT_EQ(SmallerMicro(64, 64), 32);
  EXPECT_EQ(SmallerMicro(60, 64), 30);
  EXPECT_EQ(SmallerMicro(90, 30), 15);
  EXPECT_EQ(SmallerMicro(75, 25), 5);
  EXPECT_EQ(SmallerMicro(61, 61), 30) << "one sample at a time would take for ever";
  EXPECT_EQ(SmallerMicro(3, 3), 1);
  EXPECT_EQ(SmallerMicro(2, 2), 1);
}

}  // namespace
}  // namespace trainyard
