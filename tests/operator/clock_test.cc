#include "operator/base/clock.h"

#include <gtest/gtest.h>

namespace trainyard {
namespace {

TEST(Clock, WhatIsWrittenIsRead) {
  const Time now = *ParseTime("2026-03-01T12:00:00Z");
  EXPECT_EQ(FormatTime(now), "2026-03-01T12:00:00Z");
  EXPECT_EQ(FormatMicroTime(now + std::chrono::microseconds(7)), "2026-03-01T12:00:00.000007Z");
  EXPECT_EQ(ParseTime("2026-03-01T14:00:00.5+02:00"), now + std::chrono::milliseconds(500));
  EXPECT_EQ(ParseTime("2026-03-01T11:59:60z"), now) << "a leap second";
  EXPECT_EQ(ParseTime("2026-03-01T10:29:59.9999999-01:30"), now - std::chrono::microseconds(1));
  for (const char* text : {"", "tomorrow", "2026-03-01", "2026-03-01T12:00:00", "2026-03-01T12:00:00.5",
                           "2026-02-29T12:00:00Z", "2026-13-01T12:00:00Z", "2026-03-01T24:00:00Z",
                           "2026-03-01T12:60:00Z", "2026-03-01 12:00:00Z", "-026-03-01T12:00:00Z", "2026-3-1T12:00:00Z",
                           "2026-03-01T12:00:00+2:00", "2026-03-01T12:00:00+02:60", "2026-03-01T12:00:00Zx"})
    EXPECT_FALSE(ParseTime(text)) << text;
}

TEST(Clock, AYearHasFourDigits) {
  const Time now = *ParseTime("2026-03-01T12:00:00Z");
  EXPECT_EQ(FormatTime(After(now, 400'000'000'000)), "9999-12-31T23:59:59Z");
  EXPECT_EQ(FormatMicroTime(After(now, 1e15)), "9999-12-31T23:59:59.999999Z");
  EXPECT_EQ(FormatTime(After(now, -1e15)), "0001-01-01T00:00:00Z");
  EXPECT_GT(ParseTime(FormatTime(After(now, 400'000'000'000))), After(now, 200'000'000'000));
}

}  // namespace
}  // namespace trainyard
