#include "trainer/data/prefetcher.h"

#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <stdexcept>

namespace trainyard {
namespace {

TEST(Prefetcher, Ordered) {
  Prefetcher<int64_t> items(
      [](int64_t i) {
        std::this_thread::sleep_for(std::chrono::microseconds(i % 3 * 200));
        return i * i;
      },
      5, 200, 3, 8);
  for (int64_t i = 5; i < 200; ++i) EXPECT_EQ(items.Next(), i * i);
}

TEST(Prefetcher, Bounded) {
  std::atomic<int64_t> made{0};
  Prefetcher<int64_t> items([&](int64_t i) { return ++made, i; }, 0, 100, 2, 4);
  for (int64_t taken = 1; taken <= 20; ++taken) {
    items.Next();
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
    EXPECT_LE(made, taken + 4);
  }
}

TEST(Prefetcher, ErrorsKeepTheirPlace) {
  Prefetcher<int64_t> items(
      [](int64_t i) -> int64_t {
        if (i == 3) throw std::runtime_error("three");
        return i;
      },
      0, 10, 2, 6);
  for (int64_t i = 0; i < 3; ++i) EXPECT_EQ(items.Next(), i);
  EXPECT_THROW(items.Next(), std::runtime_error);
}

TEST(Prefetcher, CanBeDroppedAtAnyMoment) {
  for (int round = 0; round < 50; ++round) {
    Prefetcher<int64_t> items([](int64_t i) { return i; }, 0, 1000, 3, 5);
    for (int i = 0; i < round; ++i) items.Next();
  }
}

}  // namespace
}  // namespace trainyard
