#include "common/process_start.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <chrono>
#include <fstream>
#include <string>

namespace trainyard {
namespace {

namespace fs = std::filesystem;

class ProcessStartTest : public testing::Test {
 protected:
  ProcessStartTest() : proc_(fs::path(testing::TempDir()) / ("process_start-" + std::to_string(getpid()))) {
    fs::remove_all(proc_);
    fs::create_directories(proc_ / "self");
  }
  ~ProcessStartTest() override { fs::remove_all(proc_); }

  std::optional<double> Read(const std::string& stat, const std::string& self) {
    std::ofstream(proc_ / "stat") << stat;
    std::ofstream(proc_ / "self" / "stat") << self;
    return ReadProcessStart(proc_, 100);
  }

  fs::path proc_;
};

constexpr char kStat[] = "cpu 1 2 3\nintr 5\nbtime 1700000000\nprocesses 9\n";
constexpr char kSelf[] = " R 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 250 20 21\n";  // fields 3 to 24

TEST_F(ProcessStartTest, TicksAfterTheMachineWasStarted) {
  EXPECT_EQ(Read(kStat, "7 (trainyard)" + std::string(kSelf)), 1700000002.5);
  EXPECT_EQ(Read(kStat, "7 (a ) b) R (c))" + std::string(kSelf)), 1700000002.5) << "a name may hold anything";
}

TEST_F(ProcessStartTest, WhatCannotBeReadIsUnknown) {
  EXPECT_FALSE(ReadProcessStart(proc_, 100));
  EXPECT_FALSE(Read("cpu 1\n", "7 (x)" + std::string(kSelf)));
  EXPECT_FALSE(Read(kStat, ""));
  EXPECT_FALSE(Read(kStat, "7 (x) R 1 2 3"));
}

TEST_F(ProcessStartTest, OfThisProcessItIsAMomentAgo) {
  const double now = std::chrono::duration<double>(std::chrono::system_clock::now().time_since_epoch()).count();
  ASSERT_TRUE(ProcessStart());
  EXPECT_NEAR(*ProcessStart(), now, 60) << "btime is whole seconds, and another clock's when that was set";
}

}  // namespace
}  // namespace trainyard
