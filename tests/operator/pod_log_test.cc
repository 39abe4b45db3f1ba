#include "operator/local/api/pod_log.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>

#include "tests/operator/builders.h"

namespace trainyard::local {
namespace {

namespace fs = std::filesystem;

class PodLogTest : public testing::Test {
 protected:
  PodLogTest() : folder_(fs::path(testing::TempDir()) / ("log-" + std::to_string(getpid()))), log_(folder_ / "c.log") {
    fs::create_directories(folder_);
  }
  ~PodLogTest() override { fs::remove_all(folder_); }

  void Write(const std::string& text) { std::ofstream(log_, std::ios::app) << text; }
  Result<LogSource> Open(const LogOptions& options = {}) const {
    const Json pod = {{"metadata", {{"name", "p"}}}, {"spec", {{"containers", Json::array({{{"name", "c"}}})}}}};
    return OpenLog(log_, pod, "c", options);
  }
  bool GivesBack() const {
    const std::string probe = folder_ / "probe";
    const int file = open(probe.c_str(), O_RDWR | O_CREAT, 0600);
    const bool can = fallocate(file, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, 0, 1) == 0;
    close(file);
    return can;
  }
  // All that is read of it.
  std::string Text(const LogOptions& options = {}) const {
    Result<LogSource> source = Open(options);
    if (!source.ok()) return source.status().ToString();
    std::string text;
    for (std::string part = source->Read(); !part.empty(); part = source->Read()) text += part;
    return text;
  }

  const fs::path folder_, log_;
};

TEST_F(PodLogTest, TheLastLines) {
  Write("one\ntwo\nthree\n");
  const std::pair<int, const char*> cases[] = {
      {0, ""}, {1, "three\n"}, {2, "two\nthree\n"}, {3, "one\ntwo\nthree\n"}, {9, "one\ntwo\nthree\n"}};
  for (const auto& [lines, text] : cases) EXPECT_EQ(Text({.tail_lines = lines, .since = {}}), text) << lines;
  const std::string wide(200'000, 'x');  // more than what is read at once
  Write(wide + "\n" + wide + "\n");
  EXPECT_EQ(Text({.tail_lines = 1, .since = {}}), wide + "\n");
  EXPECT_EQ(Text({.tail_lines = 3, .since = {}}), "three\n" + wide + "\n" + wide + "\n");
}

TEST_F(PodLogTest, TheEndOfALineThatNeverEndsIsFoundAtOnce) {
  Write(std::string(32 << 20, 'x'));
  const auto began = std::chrono::steady_clock::now();
  ASSERT_TRUE(Open({.tail_lines = 1, .since = {}}).ok());
  EXPECT_LT(std::chrono::steady_clock::now() - began, std::chrono::seconds(2));
}

// A container makes one at no cost.
TEST_F(PodLogTest, ALogOfNothingIsNotSearchedForEver) {
  const auto began = std::chrono::steady_clock::now();
  Write("one\n");
  const std::string times = log_.string() + ".times";
  std::ofstream(times) << FormatTime(reconcile::kNow) << " 0\n";
  for (const std::string& file : {log_.string(), times}) fs::resize_file(file, uint64_t{1} << 43);
  std::ofstream(log_, std::ios::app) << "\nlast\n";
  std::ofstream(times, std::ios::app) << "\n"
                                      << FormatTime(After(reconcile::kNow, 100)) << " " << (uint64_t{1} << 43) << "\n";
  EXPECT_EQ(Text({.tail_lines = 1, .since = {}}), "last\n");
  EXPECT_EQ(Open({.tail_lines = 1000, .since = {}})->at(), (uint64_t{1} << 43) + 6 - (64 << 20))
      << "no more is looked at";
  EXPECT_EQ(Text({.tail_lines = {}, .since = After(reconcile::kNow, 50)}), "\nlast\n");
  EXPECT_EQ(Text({.tail_lines = {}, .since = After(reconcile::kNow, 200)}), "");
  EXPECT_LT(std::chrono::steady_clock::now() - began, std::chrono::seconds(20));
}

TEST_F(PodLogTest, WhatCameSince) {
  LogTimes times(log_);
  for (int i = 0; i < 5000; ++i) {
    Write("line " + std::to_string(i) + "\n");
    times.Note(After(reconcile::kNow, 10 * i));
  }
  EXPECT_EQ(Text({.tail_lines = {}, .since = After(reconcile::kNow, 49980)}), "line 4998\nline 4999\n");
  EXPECT_EQ(Text({.tail_lines = {}, .since = After(reconcile::kNow, 99999)}), "");
  EXPECT_EQ(Text({.tail_lines = 1, .since = reconcile::kNow}), "line 4999\n");
}

// What a program that prints without end leaves of the disk.
TEST_F(PodLogTest, ALongLogGivesItsBeginningBack) {
  if (!GivesBack()) GTEST_SKIP() << "this file system does not give back the beginning of a file";
  const LogLimits limits{.most = 1 << 20, .kept = 256 << 10};
  const auto taken = [&] {
    struct stat info {};
    stat(log_.c_str(), &info);
    return static_cast<uint64_t>(info.st_blocks) * 512;
  };
  int line = 0;
  const auto grow = [&](int lines) {
    std::string text;
    for (const int end = line + lines; line < end; ++line) text += "line " + std::to_string(line) + "\n";
    Write(text);
  };
  grow(50'000);
  FreeBeginning(log_, limits);
  const std::string whole = Text();
  EXPECT_TRUE(whole.starts_with("line 0\n")) << "it is below the limit";
  Result<LogSource> follower = Open();
  ASSERT_EQ(follower->Read().size(), size_t{64} << 10);
  grow(100'000);
  FreeBeginning(log_, limits);
  EXPECT_LE(taken(), limits.kept + 8192);
  grow(10);
  const std::string text = Text();
  EXPECT_GT(text.size(), limits.kept - 8192) << "no more is gone";
  EXPECT_TRUE(text.starts_with("line 1")) << "a whole line: " << text.substr(0, 20);
  EXPECT_TRUE(text.ends_with("\nline 150009\n"));
  EXPECT_EQ(Text({.tail_lines = 2, .since = {}}), "line 150008\nline 150009\n");
  std::string followed;
  for (std::string part = follower->Read(); !part.empty(); part = follower->Read()) followed += part;
  EXPECT_TRUE(followed == text) << "who was behind goes on with what is there";
}

// Without end, and without lines.
TEST_F(PodLogTest, ALongLineGivesItsBeginningBack) {
  if (!GivesBack()) GTEST_SKIP() << "this file system does not give back the beginning of a file";
  const LogLimits limits{.most = 1 << 20, .kept = 256 << 10};
  Write(std::string(2 << 20, 'x'));
  FreeBeginning(log_, limits);
  EXPECT_EQ(Text(), std::string(limits.kept, 'x'));
}

TEST_F(PodLogTest, WhatIsNoFileIsNoLog) {
  ASSERT_EQ(mkfifo(log_.c_str(), 0600), 0);
  EXPECT_FALSE(Open().ok());
  fs::remove(log_);
  fs::create_symlink("/dev/zero", log_);
  EXPECT_FALSE(Open({.tail_lines = 1, .since = {}}).ok());
  fs::remove(log_);
  Write("line\n");
  ASSERT_EQ(mkfifo((log_.string() + ".times").c_str(), 0600), 0);
  EXPECT_EQ(Text({.tail_lines = {}, .since = reconcile::kNow}), "line\n");
  LogTimes(log_).NoteEnd(reconcile::kNow);
}

}  // namespace
}  // namespace trainyard::local
