#include "trainer/metrics/record.h"

#include <gtest/gtest.h>
#include <sys/stat.h>

#include <cmath>

#include "trainer/base/error.h"
#include "trainer/base/file.h"

namespace trainyard {
namespace {

class RecordTest : public testing::Test {
 protected:
  RecordTest() : path_(fs::path(testing::TempDir()) / ("record-" + std::to_string(getpid()))) {}
  ~RecordTest() override { fs::remove(path_); }

  void Steps(int64_t attempt, int64_t first, int64_t last) {
    Record record(path_, first - 1, attempt);
    const int64_t ids[] = {7, 9};
    for (int64_t step = first; step <= last; ++step) {
      record.Write({.attempt = attempt,
                    .step = step,
                    .samples = ids,
                    .input_xxh3 = 255,
                    .loss = 0.1,
                    .grad_norm = NAN,
                    .lr = 1e-3});
    }
  }
  fs::path path_;
};

TEST_F(RecordTest, TheLineOfTheContract) {
  Steps(1, 1, 1);
  EXPECT_EQ(ReadFile(path_),
            "{\"attempt\":1,\"step\":1,\"samples\":[7,9],\"input_xxh3\":\"00000000000000ff\",\"loss\":0.100000001,"
            "\"grad_norm\":\"nan\",\"lr\":0.001}\n");
}

TEST_F(RecordTest, WhatALostEndLeftIsKnown) {
  EXPECT_EQ(Record(path_, 5, 2).kept_step(), std::nullopt);
  Steps(1, 1, 5);
  EXPECT_EQ(Record(path_, 9, 2).kept_step(), 5);
  EXPECT_EQ(Record(path_, 3, 2).kept_step(), 3);
  EXPECT_EQ(Record(path_, 0, 2).kept_step(), 0);
  EXPECT_EQ(Record(path_, 4, 3).kept_step(), 0) << "an empty file has lost all of them";
}

TEST_F(RecordTest, NothingButARecordIsTouched) {
  for (const std::string text : {"my thesis\n", "{\"step\":1}\n", "{\"attempt\":1}\n", "\n"}) {
    WriteFileAtomic(path_, text);
    EXPECT_THROW(Record(path_, 0, 2), ConfigError) << text;
    EXPECT_EQ(ReadFile(path_), text);
  }
  for (const std::string text : {"", "{\"att", "{\"attempt\":1,\"st"}) {  // empty, or torn by a crash
    WriteFileAtomic(path_, text);
    Steps(1, 1, 1);
    EXPECT_TRUE(ReadFile(path_).starts_with("{\"attempt\":1,\"step\":1,")) << text;
  }
  WriteFileAtomic(path_, "{\"attempt\":1,\"step\":null,\"samples\":[],\"input_xxh3\":\"0\",\"loss\":1}\n");
  Steps(1, 2, 2);
  EXPECT_TRUE(ReadFile(path_).starts_with("{\"attempt\":1,\"step\":2,")) << "a line that is no step is cut";
  Steps(2, 1, 2);
  Steps(3, 1, 1);  // a record of ours is one
  const fs::path folder = path_.string() + "-none";
  EXPECT_THROW(Record(folder / "record", 0, 1), ConfigError);
  EXPECT_FALSE(fs::exists(folder));
  EXPECT_THROW(Record(fs::path(testing::TempDir()), 0, 1), ConfigError);
}

// To open one waits for a reader, and no stop ends that.
TEST_F(RecordTest, APipeIsRefused) {
  ASSERT_EQ(mkfifo(path_.c_str(), 0600), 0);
  EXPECT_THROW(Record(path_, 0, 1), ConfigError);
}

// A second attempt may begin again from nothing, and one that goes on keeps what was before; a run's first attempt from
// scratch has written no line yet.
TEST_F(RecordTest, AnotherRunsRecordStays) {
  Steps(1, 1, 3);
  const std::string before = ReadFile(path_);
  EXPECT_THROW(Record(path_, 0, 1), ConfigError);
  EXPECT_EQ(ReadFile(path_), before);
  Steps(1, 4, 4);
  Steps(2, 1, 1);
  const std::string text = ReadFile(path_);
  EXPECT_EQ(std::count(text.begin(), text.end(), '\n'), 1);
}

TEST_F(RecordTest, ResumeCutsWhatIsDoneAgain) {
  Steps(1, 1, 9);
  const std::string first = ReadFile(path_);
  Steps(2, 6, 9);
  const std::string both = ReadFile(path_);
  EXPECT_EQ(std::count(both.begin(), both.end(), '\n'), 9);
  EXPECT_EQ(both.substr(0, first.find("{\"attempt\":1,\"step\":6")),
            first.substr(0, first.find("{\"attempt\":1,\"step\":6")));
  EXPECT_NE(both.find("{\"attempt\":2,\"step\":6"), std::string::npos);
}

TEST_F(RecordTest, AHalfWrittenLineGoes) {
  Steps(1, 1, 3);
  const std::string whole = ReadFile(path_);
  WriteFileAtomic(path_, whole.substr(0, whole.size() - 5));
  Steps(2, 4, 4);
  const std::string text = ReadFile(path_);
  EXPECT_EQ(std::count(text.begin(), text.end(), '\n'), 3) << text;
}

}  // namespace
}  // namespace trainyard
