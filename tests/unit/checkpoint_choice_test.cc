// Which checkpoint a start goes on from, and what is none: checkpoint/reader.h, checkpoint/retention.h.
#include <gtest/gtest.h>

#include <algorithm>

#include "tests/unit/checkpoint_fixture.h"
#include "trainer/base/error.h"
#include "trainer/base/file.h"
#include "trainer/checkpoint/fence.h"
#include "trainer/checkpoint/reader.h"
#include "trainer/checkpoint/sealed_json.h"
#include "trainer/checkpoint/writer.h"

namespace trainyard {
namespace {

using CheckpointChoiceTest = CheckpointFixture;

TEST_F(CheckpointChoiceTest, BadStepsArePassedOverByName) {
  Own({"uid", 1});
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

// It may be good, and going on from an older one would throw it away.
TEST_F(CheckpointChoiceTest, WhatCannotBeLookedAtIsNotPassedOver) {
  Own({"uid", 1});
  auto writer = Make(0, 1);
  for (int64_t step : {10, 20}) {
    writer->Begin(step, Slices(0, 1), {});
    writer->Finish();
  }
  for (const char* name : {"manifest.json", "rank-00000-of-00001.safetensors"}) {
    const fs::path file = directory_ / StepName(20) / name;
    fs::rename(file, directory_ / "aside");
    fs::create_symlink(file, file);  // a link to itself
    try {
      ChooseCheckpoint(directory_);
      ADD_FAILURE() << name << " was passed over";
    } catch (const StorageError& error) {
      EXPECT_NE(std::string(error.what()).find("step-00000020 could not be looked at"), std::string::npos)
          << error.what();
    }
    fs::remove(file);
    EXPECT_EQ(ChooseCheckpoint(directory_).found->manifest.step, 10) << "what is not there is damage";
    fs::rename(directory_ / "aside", file);
  }
  EXPECT_EQ(ChooseCheckpoint(directory_).found->manifest.step, 20);
}

TEST_F(CheckpointChoiceTest, KeepLastCountsReadableStepsOnly) {
  Own({"uid", 1});
  auto first = Make(0, 1);
  for (int64_t step : {1, 2}) {
    first->Begin(step, Slices(0, 1), {});
    first->Finish();
  }
  // Attempt 2 goes on from step 1; what attempt 1 wrote behind it is fenced off, and one manifest is bad.
  Fence::Take(directory_, {"uid", 2});
  Fence::Record(directory_, {"uid", 2}, 1, "");
  fs::create_directories(directory_ / "step-00000003");
  auto second = Make(0, 1, 2);
  second->Begin(4, Slices(0, 1), {});
  second->Finish();
  EXPECT_EQ(ListSteps(directory_), (std::vector<int64_t>{4, 1}));
  EXPECT_EQ(ListAside(directory_).size(), 2u);
}

// It may be a good one whose server is away for a moment: nothing is moved aside for it, and the save is a save.
TEST_F(CheckpointChoiceTest, AManifestThatCannotBeReadIsNoBadOne) {
  Own({"uid", 1});
  auto writer = Make(0, 1);
  writer->Begin(1, Slices(0, 1), {});
  writer->Finish();
  const fs::path manifest = directory_ / StepName(1) / "manifest.json";
  fs::rename(manifest, directory_ / "manifest");
  fs::create_symlink(manifest, manifest);  // a link to itself
  auto second = Make(0, 1);                // of another process: it remembers no step as readable
  second->Begin(2, Slices(0, 1), {});
  second->Finish();
  EXPECT_EQ(ListSteps(directory_), (std::vector<int64_t>{2, 1}));
  EXPECT_TRUE(ListAside(directory_).empty());
  fs::rename(directory_ / "manifest", manifest);
  second->Begin(3, Slices(0, 1), {});
  second->Finish();
  EXPECT_EQ(ListSteps(directory_), (std::vector<int64_t>{3, 2}));
}

TEST_F(CheckpointChoiceTest, CopiesMovedAsideAreBounded) {
  Own({"uid", 1});
  auto writer = Make(0, 1);
  for (int64_t step : {11, 12, 13, 14, 15}) {
    fs::create_directories(directory_ / StepName(step + 1));
    writer->Begin(step, Slices(0, 1), {});
    writer->Finish();
  }
  EXPECT_EQ(ListAside(directory_).size(), kAsideKept);
  EXPECT_EQ(ListSteps(directory_), (std::vector<int64_t>{15, 14}));
}

TEST_F(CheckpointChoiceTest, AStepThatNoFenceListsIsNeverAFreshStart) {
  Own({"uid", 1});
  auto writer = Make(0, 1);
  for (int64_t step : {3, 4}) {
    writer->Begin(step, Slices(0, 1), {});
    writer->Finish();
  }
  fs::remove(directory_ / "fence");
  Fence::Take(directory_, {"uid", 2});
  try {
    ChooseCheckpoint(directory_);
    ADD_FAILURE() << "the loss of the fence is not noticed";
  } catch (const StorageError& error) {
    EXPECT_NE(std::string(error.what()).find("checkpoint.resume"), std::string::npos) << error.what();
  }
  EXPECT_EQ(ListSteps(directory_), (std::vector<int64_t>{4, 3})) << "nothing is renamed";
  Fence::Record(directory_, {"uid", 2}, 0, (directory_ / StepName(4)).string());  // the remedy
  // An attempt that ended before its first checkpoint hands it on: a restart must not ask for the remedy again.
  const Choice choice = ChooseCheckpoint(directory_);
  ASSERT_TRUE(choice.found);
  EXPECT_TRUE(choice.named);
  EXPECT_EQ(choice.found->manifest.step, 4);
}

TEST_F(CheckpointChoiceTest, AStartThatIsGoneIsNeverAFreshStart) {
  Fence::Take(directory_, {"uid", 1});
  Fence::Record(directory_, {"uid", 1}, 8, "");
  EXPECT_THROW(ChooseCheckpoint(directory_), StorageError);
}

TEST_F(CheckpointChoiceTest, AnAttemptThatWroteNothingHandsOnWhatItWasTold) {
  const fs::path elsewhere = directory_ / "elsewhere";
  fs::create_directories(elsewhere);
  Own({"uid", 1});
  auto writer = Make(0, 1);
  writer->Begin(7, Slices(0, 1), {});
  writer->Finish();
  fs::rename(directory_ / StepName(7), elsewhere / StepName(7));
  Fence::Take(directory_, {"uid", 2});
  Fence::Record(directory_, {"uid", 2}, 0, (elsewhere / StepName(7)).string());
  const Choice choice = ChooseCheckpoint(directory_);
  ASSERT_TRUE(choice.found);
  EXPECT_TRUE(choice.named);
  EXPECT_EQ(Load(*choice.found), values_);
}

TEST_F(CheckpointChoiceTest, WhatLiesAboveIsMovedAside) {
  Own({"uid", 1});
  auto first = Make(0, 1);
  for (int64_t step : {100, 200}) {
    first->Begin(step, Slices(0, 1), {});
    first->Finish();
  }
  Own({"uid", 2});  // a fresh start in the same directory
  auto second = Make(0, 1, 2);
  second->Begin(5, Slices(0, 1), {});
  second->Finish();
  EXPECT_EQ(ListSteps(directory_), (std::vector<int64_t>{5}));
  EXPECT_EQ(ChooseCheckpoint(directory_).found->manifest.step, 5);
}

TEST_F(CheckpointChoiceTest, AnotherShapeIsRefused) {
  Own({"uid", 1});
  auto writer = Make(0, 1);
  writer->Begin(5, Slices(0, 1), {});
  writer->Finish();
  std::vector<float> small(50);
  EXPECT_THROW(LoadTensors(*ChooseCheckpoint(directory_).found, {{"model.w", {{5, 10}, small}}}), StorageError);
}

TEST(Manifest, RefusesSlicesThatDoNotCover) {
  const auto good = nlohmann::json::parse(
      R"({"format":2,"writer":{"job_uid":"u","attempt":1},"step":3,"files":{"f":{"bytes":1,"xxh3":"0"}},
    "tensors":{"t":{"shape":[4],"slices":[{"file":"f","key":"t#0","begin":0,"end":4}]}}})");
  EXPECT_EQ(Manifest::Parse(Seal(good), "here").step, 3);
  auto with = [&](const char* pointer, const nlohmann::json& value) {
    nlohmann::json changed = good;
    changed[nlohmann::json::json_pointer(pointer)] = value;
    return Seal(changed);
  };
  EXPECT_THROW(Manifest::Parse(with("/tensors/t/slices/0/end", 3), "here"), StorageError);
  EXPECT_THROW(Manifest::Parse(with("/tensors/t/slices/0/begin", 1), "here"), StorageError);
  EXPECT_THROW(Manifest::Parse(with("/tensors/t/slices/0/file", "g"), "here"), StorageError);
  EXPECT_THROW(Manifest::Parse(with("/tensors/t/shape", {-4, -1}), "here"), StorageError);
  EXPECT_THROW(Manifest::Parse(with("/tensors/t/shape", {1LL << 62, 4}), "here"), StorageError);
  EXPECT_THROW(Manifest::Parse(with("/files", {{"../f", {{"bytes", 1}, {"xxh3", "0"}}}}), "here"), StorageError);
  EXPECT_THROW(Manifest::Parse(with("/format", 1), "here"), StorageError);
  EXPECT_THROW(Manifest::Parse(good.dump(1), "here"), StorageError) << "no checksum of its own";
  EXPECT_THROW(Manifest::Parse(Seal(good).substr(0, 50), "here"), StorageError);
  EXPECT_THROW(Manifest::Parse("", "here"), StorageError);
}

}  // namespace
}  // namespace trainyard
