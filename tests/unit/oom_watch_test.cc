#include "trainer/launch/oom_watch.h"

#include <gtest/gtest.h>

namespace trainyard {
namespace {

TEST(OomWatch, EachThatIsCountedExplainsOne) {
  uint64_t killed = 7;
  OomWatch watch([&] { return std::optional(killed); });
  EXPECT_FALSE(watch.Explains(100)) << "what was before the start";
  killed += 2;
  EXPECT_TRUE(watch.Explains(100.1));
  EXPECT_TRUE(watch.Explains(100.2));
  EXPECT_FALSE(watch.Explains(100.3));
}

TEST(OomWatch, WhatIsKilledMayTakeItsTimeToEnd) {
  uint64_t killed = 0;
  OomWatch watch([&] { return std::optional(killed); });
  watch.Look(100);
  killed = 2;
  for (double now = 100.2; now < 125; now += 0.2) watch.Look(now);
  EXPECT_TRUE(watch.Explains(125)) << "tens of gigabytes, or a device";
  for (double now = 125; now < 140; now += 0.2) watch.Look(now);
  EXPECT_FALSE(watch.Explains(140)) << "another process was killed then";
}

TEST(OomWatch, ACountThatIsNotKnownExplainsNothing) {
  std::optional<uint64_t> killed;
  OomWatch watch([&] { return killed; });
  EXPECT_FALSE(watch.Explains(100));
  killed = 9;
  EXPECT_FALSE(watch.Explains(101)) << "of those nobody knows when";
  killed = 3;
  EXPECT_FALSE(watch.Explains(102)) << "a count that went back";
  killed = UINT64_MAX;
  EXPECT_TRUE(watch.Explains(103));
}

}  // namespace
}  // namespace trainyard
