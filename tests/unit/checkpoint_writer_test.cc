#include <gtest/gtest.h>

#include <numeric>

#include "trainer/base/error.h"
#include "trainer/base/file.h"
#include "trainer/checkpoint/fence.h"
#include "trainer/checkpoint/reader.h"
#include "trainer/checkpoint/writer.h"

namespace trainyard {
namespace {

using std::chrono::seconds;

class CheckpointWriterTest : public testing::Test {
 protected:
  CheckpointWriterTest()
      : directory_(fs::path(testing::TempDir()) / ("writer-" + std::to_string(getpid()))), values_(100) {
    fs::create_directories(directory_);
    std::iota(values_.begin(), values_.end(), 0.f);
  }
  ~CheckpointWriterTest() override { fs::remove_all(directory_); }

  std::unique_ptr<CheckpointWriter> Make(int rank, int world, int64_t attempt = 1, seconds deadline = seconds(20)) {
    return std::make_unique<CheckpointWriter>(WriterOptions{.directory = directory_,
                                                            .writer = {"uid", attempt},
                                                            .rank = rank,
                                                            .world = world,
                                                            .keep_last = 2,
                                                            .keep_every = 10,
                                                            .deadline = deadline},
                                              std::make_shared<PrefixStore>(store_, std::to_string(attempt) + "/"));
  }
  // The part of "model.w" that a rank of `world` saves.
  std::vector<SourceSlice> Slices(int rank, int world) {
    const int64_t begin = 100 * rank / world, end = 100 * (rank + 1) / world;
    return {{"model.w", {10, 10}, begin, end, values_.data() + begin}};
  }
  std::vector<float> Load(const FoundCheckpoint& found) {
    std::vector<float> loaded(100, -1);
    LoadTensors(found, {{"model.w", {{10, 10}, loaded}}});
    return loaded;
  }

  fs::path directory_;
  std::shared_ptr<MemoryStore> store_ = std::make_shared<MemoryStore>();
  std::vector<float> values_;
};

TEST_F(CheckpointWriterTest, RanksWriteTheirPartsAndRankZeroCommits) {
  Fence::Take(directory_, {"uid", 1}, 0);
  auto zero = Make(0, 3), one = Make(1, 3), two = Make(2, 3);
  two->Begin(5, Slices(2, 3), {{"cursor", 40}});
  zero->Begin(5, Slices(0, 3), {{"cursor", 40}});
  EXPECT_FALSE(fs::exists(directory_ / "step-00000005")) << "rank 1 is missing";
  one->Begin(5, Slices(1, 3), {{"cursor", 40}});
  for (auto* writer : {zero.get(), one.get(), two.get()}) writer->Finish();
  const Choice choice = ChooseCheckpoint(directory_);
  ASSERT_TRUE(choice.found);
  EXPECT_EQ(choice.found->manifest.step, 5);
  EXPECT_EQ(choice.found->manifest.state["cursor"], 40);
  EXPECT_EQ(Load(*choice.found), values_);
  EXPECT_EQ(ReadFile(directory_ / "latest"), "step-00000005\n");
  EXPECT_EQ(zero->last()->step, 5);
}

TEST_F(CheckpointWriterTest, SourcesMayChangeOnceCopied) {
  Fence::Take(directory_, {"uid", 1}, 0);
  auto writer = Make(0, 1);
  const std::vector<float> before = values_;
  writer->Begin(1, Slices(0, 1), {});
  writer->WaitCopied();
  std::fill(values_.begin(), values_.end(), 0.f);
  writer->Finish();
  EXPECT_EQ(Load(*ChooseCheckpoint(directory_).found), before);
}

TEST_F(CheckpointWriterTest, AnOldAttemptDoesNotCommit) {
  Fence::Take(directory_, {"uid", 1}, 0);
  auto old = Make(0, 1);
  Fence::Take(directory_, {"uid", 2}, 0);
  old->Begin(5, Slices(0, 1), {});
  EXPECT_THROW(old->Finish(), PeerError);
  EXPECT_TRUE(ListSteps(directory_).empty());
  EXPECT_EQ(std::distance(fs::directory_iterator(directory_), fs::directory_iterator()), 1) << "only the fence is left";
}

TEST_F(CheckpointWriterTest, AMissingRankEndsAtTheDeadline) {
  Fence::Take(directory_, {"uid", 1}, 0);
  auto zero = Make(0, 2, 1, seconds(0));
  zero->Begin(5, Slices(0, 2), {});
  EXPECT_THROW(zero->Finish(), PeerError);
}

TEST_F(CheckpointWriterTest, DestructionGivesUpWaiting) {
  Fence::Take(directory_, {"uid", 1}, 0);
  auto zero = Make(0, 2);
  zero->Begin(5, Slices(0, 2), {});
  zero.reset();  // must not wait for twenty seconds
  EXPECT_TRUE(ListSteps(directory_).empty());
}

TEST_F(CheckpointWriterTest, RetentionKeepsTheNewestAndTheRoundOnes) {
  Fence::Take(directory_, {"uid", 1}, 0);
  auto writer = Make(0, 1);
  for (int64_t step : {10, 15, 20, 25, 30, 35}) {
    writer->Begin(step, Slices(0, 1), {});
    writer->Finish();
  }
  EXPECT_EQ(ListSteps(directory_), (std::vector<int64_t>{35, 30, 20, 10}));
}

TEST_F(CheckpointWriterTest, BadStepsArePassedOverByName) {
  Fence::Take(directory_, {"uid", 1}, 0);
  auto writer = Make(0, 1);
  for (int64_t step : {10, 20}) {
    writer->Begin(step, Slices(0, 1), {});
    writer->Finish();
  }
  const fs::path shard = directory_ / "step-00000020" / "rank-00000-of-00001.safetensors";
  std::string content = ReadFile(shard);
  content[content.size() - 3] ^= 1;
  WriteFileAtomic(shard, content);
  const Choice choice = ChooseCheckpoint(directory_);
  ASSERT_TRUE(choice.found);
  EXPECT_EQ(choice.found->manifest.step, 10);
  ASSERT_EQ(choice.skipped.size(), 1u);
  EXPECT_NE(choice.skipped[0].find("step-00000020"), std::string::npos);
  EXPECT_NE(choice.skipped[0].find("checksum"), std::string::npos);
  fs::remove(directory_ / "step-00000010" / "manifest.json");
  EXPECT_THROW(ChooseCheckpoint(directory_), StorageError) << "never a silent fresh start";
}

TEST_F(CheckpointWriterTest, WhatLiesAboveIsMovedAside) {
  Fence::Take(directory_, {"uid", 1}, 0);
  auto first = Make(0, 1);
  for (int64_t step : {100, 200}) {
    first->Begin(step, Slices(0, 1), {});
    first->Finish();
  }
  Fence::Take(directory_, {"uid", 2}, 0);  // a fresh start in the same directory
  auto second = Make(0, 1, 2);
  second->Begin(5, Slices(0, 1), {});
  second->Finish();
  EXPECT_EQ(ListSteps(directory_), (std::vector<int64_t>{5}));
  EXPECT_EQ(ChooseCheckpoint(directory_).found->manifest.step, 5);
}

TEST_F(CheckpointWriterTest, WithoutACommonDirectoryOnlyRankZeroNamesAFile) {
  Fence::Take(directory_, {"uid", 1}, 0);
  auto zero = Make(0, 2), one = Make(1, 2);
  zero->Begin(5, Slices(0, 1), {});
  one->Begin(5, {}, {});
  zero->Finish();
  one->Finish();
  const Choice choice = ChooseCheckpoint(directory_);
  ASSERT_TRUE(choice.found);
  EXPECT_EQ(choice.found->manifest.files.size(), 1u);
  EXPECT_EQ(Load(*choice.found), values_);
}

TEST_F(CheckpointWriterTest, AnotherShapeIsRefused) {
  Fence::Take(directory_, {"uid", 1}, 0);
  auto writer = Make(0, 1);
  writer->Begin(5, Slices(0, 1), {});
  writer->Finish();
  std::vector<float> small(50);
  EXPECT_THROW(LoadTensors(*ChooseCheckpoint(directory_).found, {{"model.w", {{5, 10}, small}}}), StorageError);
}

TEST(Manifest, RefusesSlicesThatDoNotCover) {
  const char* good = R"({"format":1,"writer":{"job_uid":"u","attempt":1},"step":3,"files":{"f":{"bytes":1,"xxh3":"0"}},
    "tensors":{"t":{"shape":[4],"slices":[{"file":"f","key":"t#0","begin":0,"end":4}]}}})";
  EXPECT_EQ(Manifest::Parse(good, "here").step, 3);
  const std::string text = good;
  auto with = [&](const std::string& from, const std::string& to) {
    return std::string(text).replace(text.find(from), from.size(), to);
  };
  EXPECT_THROW(Manifest::Parse(with("\"end\":4", "\"end\":3"), "here"), StorageError);
  EXPECT_THROW(Manifest::Parse(with("\"begin\":0", "\"begin\":1"), "here"), StorageError);
  EXPECT_THROW(Manifest::Parse(with("\"file\":\"f\"", "\"file\":\"g\""), "here"), StorageError);
  EXPECT_THROW(Manifest::Parse(with("\"format\":1", "\"format\":2"), "here"), StorageError);
  EXPECT_THROW(Manifest::Parse(text.substr(0, 50), "here"), StorageError);
}

}  // namespace
}  // namespace trainyard
