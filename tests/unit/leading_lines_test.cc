#include "trainer/metrics/leading_lines.h"

#include <gtest/gtest.h>
#include <sys/resource.h>

#include <csignal>

#include "trainer/base/error.h"
#include "trainer/base/file.h"
#include "trainer/metrics/append_file.h"
#include "trainer/metrics/json_lines.h"
#include "trainer/metrics/record.h"

namespace trainyard {
namespace {

// While it lives this process can open nothing, whoever runs it; what is open stays so.
class NoMoreFiles {
 public:
  NoMoreFiles() {
    getrlimit(RLIMIT_NOFILE, &before_);
    const rlimit none{0, before_.rlim_max};
    setrlimit(RLIMIT_NOFILE, &none);
  }
  ~NoMoreFiles() { setrlimit(RLIMIT_NOFILE, &before_); }

 private:
  rlimit before_{};
};

class LeadingLinesTest : public testing::Test {
 protected:
  LeadingLinesTest() : directory_(fs::path(testing::TempDir()) / ("leading-lines-" + std::to_string(getpid()))) {
    fs::create_directories(directory_);
  }
  ~LeadingLinesTest() override { fs::remove_all(directory_); }
  fs::path directory_;
};

TEST_F(LeadingLinesTest, WholeLinesUpToTheFirstThatGoes) {
  const fs::path path = directory_ / "lines";
  const auto is_no_end = [](const std::string& line) { return line != "end"; };
  const std::string longer(3'000'000, 'x');  // than a piece
  for (const auto& [kept, rest] : std::vector<std::pair<std::string, std::string>>{
           {"", ""}, {"", "torn"}, {"a\n\nb\n", ""}, {"a\n", "end\nb\n"}, {longer + "\n" + longer + "\n", longer}}) {
    WriteFileAtomic(path, kept + rest);
    EXPECT_EQ(LeadingLines(InputFile(path), is_no_end), kept.size());
    KeepLeadingLines(path, is_no_end);
    EXPECT_EQ(ReadFile(path), kept);
  }
}

// A long record on a volume that is nearly full: to append needs no second copy of it.
TEST_F(LeadingLinesTest, WithoutRoomForAnotherFileAllLinesStayWhereTheyAre) {
  const fs::path path = directory_ / "lines";
  WriteFileAtomic(path, "a\nb\n");
  rlimit before{};
  getrlimit(RLIMIT_FSIZE, &before);
  const auto ignore = std::signal(SIGXFSZ, SIG_IGN);
  const rlimit full{.rlim_cur = 1, .rlim_max = before.rlim_max};
  setrlimit(RLIMIT_FSIZE, &full);
  EXPECT_NO_THROW(KeepLeadingLines(path, [](const std::string&) { return true; }));
  EXPECT_THROW(KeepLeadingLines(path, [](const std::string& line) { return line != "b"; }), StorageError);
  setrlimit(RLIMIT_FSIZE, &before);
  std::signal(SIGXFSZ, ignore);
  EXPECT_EQ(ReadFile(path), "a\nb\n");
}

TEST_F(LeadingLinesTest, WhoReadsALongFileSaysThatItGetsOn) {
  const fs::path path = directory_ / "lines";
  WriteFileAtomic(path, std::string(5 << 20, 'x') + "\n");
  int ticks = 0;
  KeepLeadingLines(
      path, [](const std::string&) { return true; }, {}, [&] { ++ticks; });
  EXPECT_GE(ticks, 10) << "five MiB are read and written";
}

TEST_F(LeadingLinesTest, ADamagedLineTakesNothingWithItThatStays) {
  const fs::path path = directory_ / "lines";
  const auto stays = [](const std::string& line) -> std::optional<bool> {
    return line == "?" ? std::nullopt : std::optional(line != "end");
  };
  for (const auto& [kept, rest] : std::vector<std::pair<std::string, std::string>>{
           {"a\n?\n?\nb\n", ""}, {"a\n", "?\n"}, {"?\na\n", "?\nend\nb\n"}, {"", "?\n?\n"}}) {
    WriteFileAtomic(path, kept + rest);
    KeepLeadingLines(path, stays);
    EXPECT_EQ(ReadFile(path), kept);
  }
}

// As of a log and a record of which a byte was turned over.
TEST_F(LeadingLinesTest, ALogAndARecordGoOnBehindADamagedLine) {
  const fs::path log = directory_ / "log.jsonl", record = directory_ / "record";
  std::string lines;
  for (const char* step : {"1", "2", "3", "4"})
    lines +=
        std::string("{\"attempt\":1,\"step\":") + step + ",\"samples\":[],\"input_xxh3\":\"0\",\"train/loss\":1}\n";
  const size_t line = lines.size() / 4;
  lines[line] = '\xff';
  for (const fs::path& path : {log, record}) WriteFileAtomic(path, lines);
  OpenJsonLines({directory_, 3});
  EXPECT_EQ(Record(record, 3, 2).kept_step(), 3);
  EXPECT_EQ(ReadFile(log), lines.substr(0, 3 * line));
  EXPECT_EQ(ReadFile(record), lines.substr(0, 3 * line));
}

TEST_F(LeadingLinesTest, AFileThatCannotBeReadToItsEndIsNotAShorterOne) {
  const fs::path path = directory_ / "lines";
  WriteFileAtomic(path, "a\nb\nc\n");
  const InputFile file(path);
  fs::resize_file(path, 3);
  EXPECT_THROW(LeadingLines(file, [](const std::string&) { return true; }), StorageError);
}

TEST_F(LeadingLinesTest, WhatCannotBeOpenedIsNotCut) {
  const fs::path log = directory_ / "log.jsonl", record = directory_ / "record", foreign = directory_ / "thesis";
  const std::string lines = "{\"attempt\":1,\"step\":1,\"samples\":[],\"input_xxh3\":\"0\",\"train/loss\":1}\n";
  for (const fs::path& path : {log, record}) WriteFileAtomic(path, lines);
  WriteFileAtomic(foreign, "my thesis\n");
  {
    const NoMoreFiles none;
    EXPECT_THROW(OpenJsonLines({directory_, 1}), StorageError);
    EXPECT_THROW(Record(record, 1, 2), StorageError);
    EXPECT_THROW(CheckRecordFile(foreign), StorageError);
  }
  EXPECT_EQ(ReadFile(log), lines);
  EXPECT_EQ(ReadFile(record), lines);
}

// It has the file open that was there before it.
TEST_F(LeadingLinesTest, WhatAnOlderAttemptStillWritesIsNotInTheNewFile) {
  const fs::path path = directory_ / "lines", link = directory_ / "link";
  fs::create_symlink("lines", link);
  AppendFile old(path);
  old.Append("a\nb\n");
  fs::permissions(path, fs::perms::owner_read | fs::perms::owner_write);
  KeepLeadingLines(link, [](const std::string& line) { return line == "a"; });
  old.Append("c\n");
  EXPECT_EQ(ReadFile(path), "a\n");
  EXPECT_EQ(fs::status(path).permissions(), fs::perms::owner_read | fs::perms::owner_write);
  EXPECT_TRUE(fs::is_symlink(link));
}

TEST_F(LeadingLinesTest, WhoeverOwnsTheRunNoMoreChangesNothing) {
  const fs::path path = directory_ / "lines";
  WriteFileAtomic(path, "a\nb\n");
  const AsOwner superseded = [](const std::function<void()>&) { throw PeerError("superseded"); };
  EXPECT_THROW(KeepLeadingLines(
                   path, [](const std::string&) { return false; }, superseded),
               PeerError);
  EXPECT_EQ(ReadFile(path), "a\nb\n");
  EXPECT_EQ(std::distance(fs::directory_iterator(directory_), fs::directory_iterator()), 1);
}

}  // namespace
}  // namespace trainyard
