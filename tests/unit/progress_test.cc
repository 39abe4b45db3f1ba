#include "trainer/base/progress.h"

#include <gtest/gtest.h>

#include <thread>

namespace trainyard {
namespace {

std::string Shown(Progress& progress, int64_t done, std::optional<double> remaining = {}) {
  testing::internal::CaptureStderr();
  progress.Update(done, "", remaining);
  return testing::internal::GetCapturedStderr();
}

// What an earlier attempt did says nothing about the speed of this one.
TEST(Progress, TheFirstUpdateIsWhereTheEstimateBegins) {
  Progress progress("step", 1200, ProgressStyle::kBar);
  EXPECT_NE(Shown(progress, 448).find("448/1200  ETA ?"), std::string::npos);
  std::this_thread::sleep_for(std::chrono::milliseconds(120));  // The bar draws ten times a second.
  const std::string text = Shown(progress, 449);
  // 751 steps of at least 0.12 s are left.
  const size_t minutes = text.find("449/1200  ETA ");
  ASSERT_NE(minutes, std::string::npos) << text;
  EXPECT_NE(text.find('m', minutes), std::string::npos) << text;
}

TEST(Progress, TheCallersEstimateWins) {
  Progress progress("step", 1200, ProgressStyle::kBar);
  EXPECT_NE(Shown(progress, 448, 65).find("448/1200  ETA 1m05s"), std::string::npos);
}

}  // namespace
}  // namespace trainyard
