#include "trainer/launch/log_writer.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <fstream>
#include <thread>

#include "trainer/base/file.h"

namespace trainyard {
namespace {

class LogWriterTest : public testing::Test {
 protected:
  LogWriterTest() : directory_(fs::path(testing::TempDir()) / ("log-" + std::to_string(getpid()))) {
    fs::create_directories(directory_);
  }
  ~LogWriterTest() override { fs::remove_all(directory_); }

  // Nobody reads it yet: a file whose volume does not answer.
  fs::path Pipe() {
    const fs::path path = directory_ / "pipe";
    mkfifo(path.c_str(), 0600);
    return path;
  }

  fs::path directory_;
};

std::string ReadToTheEnd(int fd) {
  std::string text;
  char buffer[4096];
  for (ssize_t n; (n = read(fd, buffer, sizeof buffer)) > 0;) text.append(buffer, static_cast<size_t>(n));
  close(fd);
  return text;
}

TEST_F(LogWriterTest, WhatCameBeforeTheFileStandsInItFirst) {
  const fs::path path = directory_ / "logs" / "log";
  LogWriter log;
  log.Add("one\n");
  log.Open(path);
  log.Add("two\nthr");
  log.Add("ee");
  log.Finish();
  EXPECT_EQ(log.Close(), "");
  EXPECT_EQ(ReadFile(path), "one\ntwo\nthree");
  LogWriter again;
  again.Open(path);
  again.Add("four\n");
  again.Finish();
  EXPECT_EQ(again.Close(), "");
  EXPECT_EQ(ReadFile(path), "one\ntwo\nthreefour\n")
      << "a start that will be refused takes nothing from the one before";
}

TEST_F(LogWriterTest, ASlowFileIsWaitedForAndGetsEverything) {
  const fs::path path = Pipe();
  LogWriter log({.closing = std::chrono::minutes(2)});
  log.Open(path);
  std::string all;
  for (int i = 0; i < 100000; ++i) all += "line " + std::to_string(i) + "\n";
  for (size_t at = 0; at < all.size(); at += 1000) log.Add(std::string_view(all).substr(at, 1000));
  std::string read;
  std::thread reader([&] {
    std::this_thread::sleep_for(std::chrono::milliseconds(100));
    read = ReadToTheEnd(open(path.c_str(), O_RDONLY));
  });
  log.Finish();
  EXPECT_EQ(log.Close(), "");
  reader.join();
  EXPECT_EQ(read, all);
}

TEST_F(LogWriterTest, WhatDoesNotFitIsCountedAndTheFileSaysWhere) {
  const fs::path path = Pipe();
  LogWriter log({.max_bytes = 16, .closing = std::chrono::minutes(2)});
  log.Add("0123456\n0123456\n");
  for (int i = 0; i < 3; ++i) log.Add("lost\n");
  log.Open(path);
  const int fd = open(path.c_str(), O_RDONLY);
  char first[16];
  ASSERT_EQ(read(fd, first, sizeof first), 16) << "there is room again";
  log.Add("late\n");
  log.Finish();
  EXPECT_EQ(log.Close(), path.string() + " lacks 3 lines: it is written more slowly than the rank writes");
  EXPECT_EQ(ReadToTheEnd(fd), "\n[3 lines are missing here]\nlate\n");
}

TEST_F(LogWriterTest, AFileThatTakesNothingIsNotWaitedForLonger) {
  const fs::path path = Pipe();
  LogWriter log({.closing = std::chrono::milliseconds(50)});
  log.Open(path);
  log.Add("one\ntwo\nhalf");
  log.Finish();
  EXPECT_EQ(log.Close(), path.string() + " lacks 3 lines: it is not written in time");
}

TEST_F(LogWriterTest, WhatIsSaidLastFindsRoom) {
  int ends[2];
  ASSERT_EQ(pipe(ends), 0);
  LogWriter log({.max_bytes = 16, .closing = std::chrono::minutes(2)});
  log.Add("0123456\n0123456\n");
  log.Add("lost\n");
  log.Say("the end\n");
  log.Open(ends[1], "the pipe");
  EXPECT_EQ(log.Flush(std::chrono::minutes(1)),
            "the pipe lacks 1 lines: it is written more slowly than the rank writes");
  log.Finish();
  log.Close();
  close(ends[1]);
  EXPECT_EQ(ReadToTheEnd(ends[0]), "0123456\n0123456\n\n[1 lines are missing here]\nthe end\n");
}

TEST_F(LogWriterTest, ADescriptorThatDoesNotBlockGetsEverything) {
  int ends[2];
  ASSERT_EQ(pipe(ends), 0);
  ASSERT_EQ(fcntl(ends[1], F_SETFL, O_NONBLOCK), 0);
  LogWriter log({.closing = std::chrono::minutes(2)});
  log.Open(ends[1], "the pipe");
  const std::string all(1000000, 'x');
  log.Add(all);
  std::string read;
  std::thread reader([&] {
    std::this_thread::sleep_for(std::chrono::milliseconds(100));
    read = ReadToTheEnd(ends[0]);
  });
  log.Finish();
  EXPECT_EQ(log.Close(), "");
  close(ends[1]);
  reader.join();
  EXPECT_TRUE(read == all) << read.size() << " bytes";
}

TEST_F(LogWriterTest, ADescriptorWithoutAReaderIsSaid) {
  int ends[2];
  ASSERT_EQ(pipe(ends), 0);
  close(ends[0]);
  LogWriter log;
  log.Open(ends[1], "the pipe");
  log.Add("one\n");
  EXPECT_EQ(log.Flush(std::chrono::minutes(1)), "the pipe lacks 1 lines: cannot write: Broken pipe");
  log.Finish();
  log.Close();
  close(ends[1]);
}

TEST_F(LogWriterTest, AFileThatCannotBeMadeIsNamed) {
  std::ofstream(directory_ / "file") << "in the way";
  LogWriter log;
  log.Open(directory_ / "file" / "log");
  log.Add("one\n");
  log.Finish();
  const std::string said = log.Close();
  EXPECT_NE(said.find("log lacks 1 lines: cannot write "), std::string::npos) << said;
}

TEST_F(LogWriterTest, WithoutAFileNothingIsMissing) {
  LogWriter log({.max_bytes = 2});
  log.Add("one\n");
  log.Finish();
  EXPECT_EQ(log.Close(), "");
}

}  // namespace
}  // namespace trainyard
