#include <gtest/gtest.h>

#include <atomic>
#include <future>
#include <numeric>
#include <thread>

#include "trainer/base/error.h"
#include "trainer/base/file.h"
#include "trainer/checkpoint/fence.h"
#include "trainer/checkpoint/reader.h"
#include "trainer/checkpoint/sealed_json.h"
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

  // Takes the directory over and starts from nothing.
  void Own(const Writer& writer) {
    Fence::Take(directory_, writer);
    Fence::Record(directory_, writer, 0, "");
  }
  std::unique_ptr<CheckpointWriter> Make(int rank, int world, int64_t attempt = 1, seconds silence = seconds(20)) {
    return std::make_unique<CheckpointWriter>(WriterOptions{.directory = directory_,
                                                            .writer = {"uid", attempt},
                                                            .rank = rank,
                                                            .world = world,
                                                            .retention = {2, 10},
                                                            .life = {.silence = silence}},
                                              std::make_shared<PrefixStore>(store_, std::to_string(attempt) + "/"));
  }
  fs::path Unfinished(const Writer& writer, int64_t step) const {
    return directory_ / (StepName(step) + ".tmp-" + TagOf(writer));
  }
  // The part of "model.w" that a rank of `world` saves.
  std::vector<SourceSlice> Slices(int rank, int world) {
    const int64_t begin = 100 * rank / world, end = 100 * (rank + 1) / world;
    return {{"model.w", {10, 10}, begin, end, [this, begin, end](float* to) {
               std::copy(values_.begin() + begin, values_.begin() + end, to);
             }}};
  }
  std::vector<float> Load(const OpenCheckpoint& found) {
    std::vector<float> loaded(100, -1);
    LoadTensors(found, {{"model.w", {{10, 10}, loaded}}});
    return loaded;
  }

  fs::path directory_;
  std::shared_ptr<MemoryStore> store_ = std::make_shared<MemoryStore>();
  std::vector<float> values_;
};

TEST_F(CheckpointWriterTest, RanksWriteTheirPartsAndRankZeroCommits) {
  Own({"uid", 1});
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

// The engine of a stage that is over goes as soon as it is copied: while its files are written the next one is there.
TEST_F(CheckpointWriterTest, WhatIsCopiedIsHeldNoLonger) {
  Own({"uid", 1});
  auto zero = Make(0, 2), one = Make(1, 2);
  auto engine = std::make_shared<std::vector<float>>(values_);
  const std::weak_ptr<std::vector<float>> held = engine;
  const auto copy = [engine](float* to) { std::ranges::copy(*engine, to); };
  zero->Begin(5, {{"model.w", {10, 10}, 0, 100, copy}}, {});
  engine.reset();
  zero->WaitCopied();  // it waits for rank 1 now
  EXPECT_EQ(held.use_count(), 1) << "the test's own: the function above";
  one->Begin(5, {}, {});
  for (auto* writer : {zero.get(), one.get()}) writer->Finish();
}

// Who was frozen between a look at the fence and its change would change what is another's.
TEST_F(CheckpointWriterTest, NobodyTakesTheRunOverWhileItsOwnerChangesIt) {
  Own({"uid", 1});
  auto writer = Make(0, 1);
  std::thread newer;
  std::atomic<bool> changed = false, taken = false;
  writer->AsOwner([&] {
    newer = std::thread([&] {
      Fence::Take(directory_, {"uid", 2});
      EXPECT_TRUE(changed);
      taken = true;
    });
    std::this_thread::sleep_for(std::chrono::milliseconds(100));  // what takes no lock would have taken the run
    EXPECT_FALSE(taken);
    changed = true;
  });
  newer.join();
  EXPECT_THROW(writer->AsOwner([] { FAIL() << "attempt 2 owns the run"; }), PeerError);
}

// A long run saves thousands of times, into the memory of one process.
TEST_F(CheckpointWriterTest, TheStoreDoesNotGrowWithTheCheckpoints) {
  Own({"uid", 1});
  auto zero = Make(0, 2), one = Make(1, 2);
  size_t after_two = 0;
  for (int64_t step = 1; step <= 30; ++step) {
    zero->Begin(step, Slices(0, 2), {});
    one->Begin(step, Slices(1, 2), {});
    zero->Finish();
    one->Finish();
    if (step == 2) after_two = store_->size();
  }
  EXPECT_EQ(store_->size(), after_two);
  EXPECT_LE(after_two, 3u) << "a verdict, and a sign of life of each rank";
}

// A rank that writes or checks many gigabytes is heard of meanwhile, however long that takes: who waits for it does so
// until it is silent. Both, that it can be heard of and that it is asked so often, are needed.
TEST_F(CheckpointWriterTest, CheckingAndLoadingTickEveryFewMegabytes) {
  constexpr int64_t kValues = 6 << 20;  // 24 MiB
  std::vector<float> values(kValues, 1.5f), loaded(kValues);
  Own({"uid", 1});
  auto writer = Make(0, 1);
  writer->Begin(5, {{"model.w", {kValues}, 0, kValues, [&](float* to) { std::ranges::copy(values, to); }}}, {});
  writer->Finish();
  std::atomic<int64_t> ticks = 0;  // files are checked by several threads
  const Tick tick = [&] { ++ticks; };
  constexpr int64_t kFew = 8 << 20, kLeast = kValues * 4 / kFew;
  OpenCheckpoint checkpoint = OpenCheckpoint::Open(directory_ / "step-00000005");
  VerifyFiles(checkpoint, checkpoint.FileNames(), tick);
  EXPECT_GE(ticks.exchange(0), kLeast);
  LoadTensors(checkpoint, {{"model.w", {{kValues}, loaded}}}, tick);
  EXPECT_GE(ticks.exchange(0), kLeast);
  EXPECT_EQ(loaded, values);
  // A stop is obeyed as often.
  const Tick stop = [] { throw StoppedError("stopped"); };
  OpenCheckpoint another = OpenCheckpoint::Open(directory_ / "step-00000005");
  EXPECT_THROW(VerifyFiles(another, another.FileNames(), stop), StoppedError);
}

// Sees what of its part rank 1 has written, and told, when it says that it gets on.
class WatchedStore : public MemoryStore {
 public:
  explicit WatchedStore(fs::path part) : part_(std::move(part)) {}
  int64_t Add(const std::string& key, int64_t amount) override {
    if (key.ends_with("alive/1") && fs::exists(part_) && !Get("checkpoint/5/1")) ++beats;
    return MemoryStore::Add(key, amount);
  }
  std::atomic<int> beats = 0;

 private:
  const fs::path part_;
};

TEST_F(CheckpointWriterTest, ARankBeatsWhileItWrites) {
  Own({"uid", 1});
  const auto store = std::make_shared<WatchedStore>(Unfinished({"uid", 1}, 5) / "rank-00001-of-00002.safetensors");
  CheckpointWriter writer({.directory = directory_, .writer = {"uid", 1}, .rank = 1, .world = 2}, store);
  writer.Begin(5, Slices(1, 2), {});
  while (!store->Get("checkpoint/5/1")) std::this_thread::yield();
  EXPECT_GE(store->beats, 1);
}

// Whoever asks a run that goes on, before it saves or when it never does, learns what is durable.
TEST_F(CheckpointWriterTest, TheStepThatIsGoneOnFromIsDurable) {
  Own({"uid", 1});
  const CommittedCheckpoint before{.step = 5, .bytes = 800, .time = 1'700'000'000, .seconds = {}};
  CheckpointWriter writer({.directory = directory_, .writer = {"uid", 1}, .resumed = before}, store_);
  ASSERT_TRUE(writer.last());
  EXPECT_EQ(writer.last()->step, 5);
  EXPECT_EQ(writer.last()->seconds, std::nullopt);
  writer.Begin(7, Slices(0, 1), {});
  writer.Finish();
  EXPECT_EQ(writer.last()->step, 7);
  EXPECT_TRUE(writer.last()->seconds);
}

// A person who is told of a step's memory would make the micro-batches smaller, which changes nothing.
TEST_F(CheckpointWriterTest, ACopyThatDoesNotFitIsNamedWithItsSize) {
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
  GTEST_SKIP() << "a sanitizer ends the process instead";
#endif
  Own({"uid", 1});
  auto writer = Make(0, 1);
  writer->Begin(7, {{"model.w", {int64_t{1} << 50}, 0, int64_t{1} << 50, nullptr}}, {});
  try {
    writer->Finish();
    FAIL();
  } catch (const OutOfMemoryError& error) {
    EXPECT_NE(std::string(error.what()).find("for the checkpoint of step 7 takes 4096.0 TiB more"), std::string::npos)
        << error.what();
  }
}

TEST_F(CheckpointWriterTest, SourcesMayChangeOnceCopied) {
  Own({"uid", 1});
  auto writer = Make(0, 1);
  const std::vector<float> before = values_;
  writer->Begin(1, Slices(0, 1), {});
  writer->WaitCopied();
  std::fill(values_.begin(), values_.end(), 0.f);
  writer->Finish();
  EXPECT_EQ(Load(*ChooseCheckpoint(directory_).found), before);
}

TEST_F(CheckpointWriterTest, SourcesThatStayAreHeldAndNotWaitedFor) {
  Own({"uid", 1});
  auto writer = Make(0, 1);
  std::promise<void> may_copy;
  std::atomic<bool> copied = false;
  writer->Begin(1,
                {{"model.w",
                  {10, 10},
                  0,
                  100,
                  [&, may = may_copy.get_future().share()](float* to) {
                    may.wait();
                    std::ranges::copy(values_, to);
                    copied = true;
                  }}},
                {}, Sources::kStay);
  writer->WaitCopied();
  EXPECT_FALSE(copied);
  std::thread later([&] { may_copy.set_value(); });
  writer->WaitTaken();
  EXPECT_TRUE(copied);
  later.join();
  writer->Finish();
  EXPECT_EQ(Load(*ChooseCheckpoint(directory_).found), values_);
}

TEST_F(CheckpointWriterTest, AnOldAttemptDoesNotCommit) {
  Own({"uid", 1});
  auto old = Make(0, 1);
  Own({"uid", 2});
  old->Begin(5, Slices(0, 1), {});
  EXPECT_THROW(old->Finish(), PeerError);
  EXPECT_TRUE(ListSteps(directory_).empty());
  EXPECT_EQ(std::distance(fs::directory_iterator(directory_), fs::directory_iterator()), 2) << "the fence and its lock";
}

TEST_F(CheckpointWriterTest, ASilentRankEndsTheWait) {
  Own({"uid", 1});
  auto zero = Make(0, 2, 1, seconds(0));
  zero->Begin(5, Slices(0, 2), {});
  EXPECT_THROW(zero->Finish(), PeerError);
}

TEST_F(CheckpointWriterTest, DestructionGivesUpWaiting) {
  Own({"uid", 1});
  auto zero = Make(0, 2);
  zero->Begin(5, Slices(0, 2), {});
  zero.reset();  // must not wait for twenty seconds
  EXPECT_TRUE(ListSteps(directory_).empty());
}

TEST_F(CheckpointWriterTest, RetentionKeepsTheNewestAndTheRoundOnes) {
  Own({"uid", 1});
  auto writer = Make(0, 1);
  for (int64_t step : {10, 15, 20, 25, 30, 35}) {
    writer->Begin(step, Slices(0, 1), {});
    writer->Finish();
  }
  EXPECT_EQ(ListSteps(directory_), (std::vector<int64_t>{35, 30, 20, 10}));
}

// Before its next save nothing else tells it.
TEST_F(CheckpointWriterTest, ASupersededAttemptHearsOfItWhileItSavesNothing) {
  Own({"uid", 1});
  CheckpointWriter writer(
      {.directory = directory_, .writer = {"uid", 1}, .owner_interval = std::chrono::milliseconds(10)}, store_);
  std::this_thread::sleep_for(std::chrono::milliseconds(100));
  writer.ThrowIfFailed();
  Own({"uid", 2});
  const auto end = std::chrono::steady_clock::now() + std::chrono::minutes(1);
  const auto has_failed = [&] {
    try {
      writer.ThrowIfFailed();
    } catch (const PeerError&) {
      return true;
    }
    return false;
  };
  while (!has_failed()) {
    ASSERT_LT(std::chrono::steady_clock::now(), end);
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
  }
}

// Large files take a network file system long to remove, and the other ranks wait for the verdict.
TEST_F(CheckpointWriterTest, AStepIsSaidToBeDurableBeforeOldOnesAreRemoved) {
  struct WatchedStore : MemoryStore {
    void Set(const std::string& key, const std::string& value) override {
      if (key.ends_with("25/verdict")) {
        for (const auto& entry : fs::directory_iterator(directory))
          old_is_there |= entry.path().filename().string().starts_with(StepName(15));
      }
      MemoryStore::Set(key, value);
    }
    fs::path directory;
    bool old_is_there = false;
  };
  const auto watched = std::make_shared<WatchedStore>();
  watched->directory = directory_;
  store_ = watched;
  Own({"uid", 1});
  auto writer = Make(0, 1);
  for (int64_t step : {10, 15, 20, 25}) {
    writer->Begin(step, Slices(0, 1), {});
    writer->Finish();
  }
  EXPECT_TRUE(watched->old_is_there);
  for (const auto& entry : fs::directory_iterator(directory_))
    EXPECT_FALSE(entry.path().filename().string().starts_with(StepName(15))) << entry.path();
}

TEST_F(CheckpointWriterTest, WhatWasFoundReadableAndLiesFarBackIsNotReadInEverySave) {
  Own({"uid", 1});
  auto save = [&](CheckpointWriter& writer, int64_t step) {
    writer.Begin(step, Slices(0, 1), {});
    writer.Finish();
  };
  auto first = Make(0, 1);
  for (int64_t step : {10, 20, 30, 40}) save(*first, step);
  fs::remove(directory_ / "step-00000010" / "manifest.json");
  save(*first, 50);
  EXPECT_EQ(ListSteps(directory_), (std::vector<int64_t>{50, 40, 30, 20, 10})) << "10 was read again";
  fs::remove(directory_ / "step-00000050" / "manifest.json");
  save(*first, 60);
  EXPECT_EQ(ListSteps(directory_), (std::vector<int64_t>{60, 40, 30, 20, 10})) << "the newest are always looked at";
  Fence::Take(directory_, {"uid", 2});
  Fence::Record(directory_, {"uid", 2}, 60, "");
  auto second = Make(0, 1, 2);
  save(*second, 70);
  EXPECT_EQ(ListSteps(directory_), (std::vector<int64_t>{70, 60, 40, 30, 20})) << "another attempt looks for itself";
}

TEST_F(CheckpointWriterTest, BadStepsArePassedOverByName) {
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
TEST_F(CheckpointWriterTest, WhatCannotBeLookedAtIsNotPassedOver) {
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

TEST_F(CheckpointWriterTest, AFencedOffWriterWhoseFolderVanishedIsNotTheCause) {
  Own({"uid", 1});
  auto zero = Make(0, 2);
  zero->Begin(5, Slices(0, 2), {});
  const fs::path temporary = Unfinished({"uid", 1}, 5);
  while (!fs::exists(temporary / "rank-00000-of-00002.safetensors")) std::this_thread::yield();
  Own({"uid", 2});
  fs::remove_all(temporary);  // as the new owner does
  auto one = Make(1, 2);
  one->Begin(5, {}, {});
  EXPECT_THROW(zero->Finish(), PeerError);
  EXPECT_THROW(one->Finish(), PeerError);
}

// Both begin alike, are at their first attempt, and save the same step.
TEST_F(CheckpointWriterTest, AFencedOffWriterLeavesTheNewOwnersFolderAlone) {
  const Writer a{"experiment-a", 1}, b{"experiment-b", 1};
  Own(a);
  CheckpointWriter one({.directory = directory_, .writer = b, .rank = 1, .world = 2}, store_);
  Own(b);
  one.Begin(5, Slices(1, 2), {});
  while (!store_->Get("checkpoint/5/1")) std::this_thread::yield();
  const auto parts = [&] {
    std::set<fs::path> files;
    for (const auto& entry : fs::recursive_directory_iterator(directory_)) {
      if (entry.path().extension() == ".safetensors") files.insert(entry.path());
    }
    return files;
  };
  const std::set<fs::path> before = parts();
  ASSERT_EQ(before.size(), 1u);
  CheckpointWriter old({.directory = directory_, .writer = a}, std::make_shared<MemoryStore>());
  old.Begin(5, Slices(0, 1), {});
  EXPECT_THROW(old.Finish(), PeerError);
  EXPECT_EQ(parts(), before);
}

TEST_F(CheckpointWriterTest, CommitAndTakingOverExcludeEachOther) {
  Own({"uid", 1});
  auto lock = std::make_unique<FenceLock>(directory_);
  auto writer = Make(0, 1);
  writer->Begin(5, Slices(0, 1), {});
  while (!fs::exists(Unfinished({"uid", 1}, 5) / "manifest.json")) std::this_thread::yield();
  std::this_thread::sleep_for(std::chrono::milliseconds(50));  // longer only makes the check stricter
  EXPECT_TRUE(ListSteps(directory_).empty()) << "committed while somebody may take the fence over";
  EXPECT_THROW(Fence::Take(directory_, {"uid", 2}, [] { return true; }), StoppedError) << "it must wait";
  EXPECT_TRUE(Fence::Read(directory_).IsLast({"uid", 1}));
  lock.reset();
  writer->Finish();
  EXPECT_EQ(ListSteps(directory_), (std::vector<int64_t>{5}));
}

TEST_F(CheckpointWriterTest, KeepLastCountsReadableStepsOnly) {
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
TEST_F(CheckpointWriterTest, AManifestThatCannotBeReadIsNoBadOne) {
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

TEST_F(CheckpointWriterTest, CopiesMovedAsideAreBounded) {
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

TEST_F(CheckpointWriterTest, AStepThatNoFenceListsIsNeverAFreshStart) {
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

TEST_F(CheckpointWriterTest, AStartThatIsGoneIsNeverAFreshStart) {
  Fence::Take(directory_, {"uid", 1});
  Fence::Record(directory_, {"uid", 1}, 8, "");
  EXPECT_THROW(ChooseCheckpoint(directory_), StorageError);
}

TEST_F(CheckpointWriterTest, AnAttemptThatWroteNothingHandsOnWhatItWasTold) {
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

TEST_F(CheckpointWriterTest, TheBytesAreThoseOfTheFiles) {
  Own({"uid", 1});
  auto zero = Make(0, 2), one = Make(1, 2);
  zero->Begin(5, Slices(0, 1), {});
  one->Begin(5, {}, {});
  zero->Finish();
  one->Finish();
  uint64_t bytes = 0;
  for (const auto& entry : fs::directory_iterator(directory_ / StepName(5))) bytes += entry.file_size();
  EXPECT_EQ(zero->last()->bytes, bytes);
  EXPECT_EQ(one->last()->bytes, bytes);
}

TEST_F(CheckpointWriterTest, WhatLiesAboveIsMovedAside) {
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

TEST_F(CheckpointWriterTest, WithoutACommonDirectoryOnlyRankZeroNamesAFile) {
  Own({"uid", 1});
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
