#include "trainer/base/for_each.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <stdexcept>
#include <thread>
#include <vector>

namespace trainyard {
namespace {

TEST(ForEachTest, EachOnceOnAnyNumberOfThreads) {
  for (const int64_t threads : {0, 1, 3, 64}) {
    for (const int64_t count : {0, 1, 2, 1000}) {
      std::vector<std::atomic<int>> called(static_cast<size_t>(count));
      std::vector<int64_t> seen;
      ForEach(
          count, threads, [&](int64_t i) { ++called[static_cast<size_t>(i)]; },
          [&](int64_t done) { seen.push_back(done); });
      EXPECT_TRUE(std::all_of(called.begin(), called.end(), [](const auto& n) { return n == 1; }));
      EXPECT_TRUE(std::is_sorted(seen.begin(), seen.end()));
      EXPECT_EQ(seen.back(), count);
    }
  }
}

TEST(ForEachTest, AsManyAtATimeAsSaid) {
  std::atomic<int> running{0}, most{0};
  ForEach(20, 3, [&](int64_t) {
    const int now = ++running;
    for (int seen = most; seen < now && !most.compare_exchange_weak(seen, now);) continue;
    std::this_thread::sleep_for(std::chrono::milliseconds(2));
    --running;
  });
  EXPECT_LE(most, 3);
}

// And nothing is begun behind it, nor goes on when it is told.
TEST(ForEachTest, AnErrorEndsIt) {
  std::atomic<int> begun{0}, running{0};
  const auto run = [&](int64_t i) {
    ++begun;
    ++running;
    std::this_thread::sleep_for(std::chrono::milliseconds(i == 0 ? 1 : 2));
    --running;
    if (i == 0) throw std::runtime_error("of the first");
  };
  try {
    ForEach(10'000, 2, run);
    FAIL() << "it was not thrown";
  } catch (const std::runtime_error& error) {
    EXPECT_STREQ(error.what(), "of the first");
  }
  EXPECT_EQ(running, 0);
  EXPECT_LT(begun, 10'000);
}

TEST(ForEachTest, WhatIsThrownWhileItIsWatchedEndsIt) {
  std::atomic<int> begun{0}, running{0};
  const auto run = [&](int64_t) {
    ++begun;
    ++running;
    std::this_thread::sleep_for(std::chrono::milliseconds(2));
    --running;
  };
  EXPECT_THROW(ForEach(10'000, 2, run, [](int64_t) { throw std::runtime_error("watched"); }), std::runtime_error);
  EXPECT_EQ(running, 0);
  EXPECT_LT(begun, 10'000);
}

}  // namespace
}  // namespace trainyard
