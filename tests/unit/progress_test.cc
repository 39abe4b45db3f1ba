#include "trainer/base/progress.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <thread>

#include "trainer/base/file.h"

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

// Standard error, in a file that can be read while it is written.
class StandardError {
 public:
  StandardError() : path_(testing::TempDir() + "/stderr-" + std::to_string(getpid())), saved_(dup(STDERR_FILENO)) {
    const int file = open(path_.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_APPEND, 0600);
    dup2(file, STDERR_FILENO);
    close(file);
  }
  ~StandardError() {
    dup2(saved_, STDERR_FILENO);
    close(saved_);
    fs::remove(path_);
  }
  std::string text() const { return ReadFile(path_); }
  bool Shows(const std::string& word) const {
    const auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds(60);
    while (std::chrono::steady_clock::now() < deadline) {
      if (text().find(word) != std::string::npos) return true;
      std::this_thread::sleep_for(std::chrono::milliseconds(20));
    }
    return false;
  }

 private:
  const std::string path_;
  const int saved_;
};

TEST(Progress, WhatIsAwaitedIsSaidToRun) {
  for (const auto style : {ProgressStyle::kLines, ProgressStyle::kBar}) {
    const StandardError error;
    Progress progress("step", 10, style);
    progress.Await(3, "step 4 of 10, first step");
    EXPECT_TRUE(error.Shows("step 4 of 10, first step running for ")) << error.text();
    progress.Update(4, "");
    EXPECT_TRUE(error.Shows("4/10  ETA ")) << error.text();
    EXPECT_EQ(error.text().find("ETA ?"), std::string::npos) << "a step was waited for, and so its length is known";
  }
}

TEST(Progress, WhatTakesAMomentIsNotSaidToRun) {
  const StandardError error;
  Progress progress("evaluation", 4, ProgressStyle::kLines, Progress::End::kNothing);
  progress.Await(0, "evaluation");
  for (int64_t done = 1; done <= 4; ++done) progress.Update(done, "");
  progress.Print("its result");
  EXPECT_EQ(error.text(), "its result\n");
}

TEST(Progress, ABarWhoseResultFollowsLeavesNothing) {
  const StandardError error;
  Progress progress("evaluation", 4, ProgressStyle::kBar, Progress::End::kNothing);
  progress.Update(1, "");
  EXPECT_TRUE(error.text().ends_with("1/4  ETA ?")) << error.text();
  progress.Update(4, "");
  EXPECT_TRUE(error.text().ends_with("ETA ?\r\033[K")) << error.text();
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
