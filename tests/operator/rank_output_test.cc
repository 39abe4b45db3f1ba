#include "operator/local/rank_output.h"

#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <fstream>

namespace trainyard::local {
namespace {

namespace fs = std::filesystem;

class RankOutputTest : public testing::Test {
 protected:
  RankOutputTest() : folder_(fs::path(testing::TempDir()) / ("output-" + std::to_string(getpid()))) {
    fs::create_directories(folder_);
  }
  ~RankOutputTest() override { fs::remove_all(folder_); }

  fs::path Write(const std::string& name, const std::string& text) {
    std::ofstream(folder_ / name, std::ios::app) << text;
    return folder_ / name;
  }
  static std::string Lines(const std::string& what, int count) {
    std::string text;
    for (int i = 1; i <= count; ++i) text += what + " line " + std::to_string(i) + " of a log with some text in it\n";
    return text;
  }

  const fs::path folder_;
  std::vector<std::string> said_;
  RankOutput output_{[this](const std::string& line) { said_.push_back(line); }};
};

TEST_F(RankOutputTest, LinesComeWholeAndAsTheyWereDrawnLast) {
  const fs::path log = Write("log", "one\ntw");
  output_.Follow(log);
  EXPECT_EQ(said_, std::vector<std::string>{"one"});
  Write("log", "o\n10 %\r20 %\nthree");
  output_.Follow(log);
  output_.Finish();
  EXPECT_EQ(said_, (std::vector<std::string>{"one", "two", "20 %", "three"}));
}

TEST_F(RankOutputTest, OfAFastProgramTheEndIsShown) {
  const fs::path log = Write("log", "first\n");
  output_.Follow(log);
  Write("log", Lines("fast", 200000));
  output_.Finish();
  EXPECT_EQ(said_.at(0), "first");
  EXPECT_EQ(said_.at(1).find("... "), 0u) << said_.at(1);
  EXPECT_EQ(said_.at(2).find("fast line "), 0u) << "whole lines: " << said_.at(2);
  EXPECT_EQ(said_.back().find("fast line 200000 "), 0u) << said_.back();
  EXPECT_LT(said_.size(), 5000u);
}

TEST_F(RankOutputTest, TheNextLogBeginsWhenTheOneBeforeIsFinished) {
  const fs::path first = Write("first", Lines("A1", 60000)), second = Write("second", "A2\n");
  output_.Follow(first);
  output_.Follow(second);
  EXPECT_EQ(said_.at(said_.size() - 2).find("A1 line 60000 "), 0u);
  EXPECT_EQ(said_.back(), "A2");
}

TEST_F(RankOutputTest, WhatIsNoFileIsNotWaitedFor) {
  const fs::path fifo = folder_ / "fifo";
  ASSERT_EQ(mkfifo(fifo.c_str(), 0600), 0);
  output_.Follow(fifo);
  output_.Finish();
  const fs::path log = Write("log", "one\n");
  output_.Follow(log);
  fs::remove(log);
  ASSERT_EQ(mkfifo(log.c_str(), 0600), 0);
  output_.Follow(log);
  output_.Finish();
  EXPECT_EQ(said_, std::vector<std::string>{"one"});
}

}  // namespace
}  // namespace trainyard::local
