#include "trainer/base/progress.h"

#include <gtest/gtest.h>

#include <algorithm>
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

TEST(BarLine, NeverWraps) {
  const std::string detail = "loss 0.1234  lr 1.00e-03  12345 samples/s";
  for (int columns = -1; columns < 200; ++columns) {
    const std::string line = BarLine("step", 123456, 1000000, detail, "ETA 1h02m", columns);
    ASSERT_LT(static_cast<int>(line.size()), std::max(2, columns)) << line;
  }
}

TEST(BarLine, GivesUpTheBarFirstThenTheDetail) {
  const std::string detail = "loss 0.1234  lr 1.00e-03";
  EXPECT_EQ(BarLine("step", 5, 10, detail, "ETA 3.0s", 100),
            "step [############------------] 5/10  loss 0.1234  lr 1.00e-03  ETA 3.0s");
  EXPECT_EQ(BarLine("step", 5, 10, detail, "ETA 3.0s", 59),
            "step [#####-----] 5/10  loss 0.1234  lr 1.00e-03  ETA 3.0s");
  EXPECT_EQ(BarLine("step", 5, 10, detail, "ETA 3.0s", 50), "step 5/10  loss 0.1234  lr 1.00e-03  ETA 3.0s");
  EXPECT_EQ(BarLine("step", 5, 10, detail, "ETA 3.0s", 34), "step 5/10  loss 0.1234  ETA 3.0s");
  EXPECT_EQ(BarLine("step", 0, 0, "", "1.0s", 60), "step [########################] 0/0  1.0s");
}

TEST(TerminalColumns, IsPositive) { EXPECT_GT(TerminalColumns(), 0); }

}  // namespace
}  // namespace trainyard
