// How ranks save, commit and remove: checkpoint/writer.h.
#include <gtest/gtest.h>

#include <atomic>
#include <future>
#include <numeric>
#include <thread>

#include "tests/unit/checkpoint_fixture.h"
#include "trainer/base/error.h"
#include "trainer/base/file.h"
#include "trainer/checkpoint/fence.h"
#include "trainer/checkpoint/reader.h"
#include "trainer/checkpoint/sealed_json.h"
#include "trainer/checkpoint/writer.h"

namespace trainyard {
namespace {

using std::chrono::seconds;

using CheckpointWriterTest = CheckpointFixture;

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
  EXPECT_NE(
      MessageOf<OutOfMemoryError>([&] { writer->Finish(); }).find("for the checkpoint of step 7 takes 4096.0 TiB more"),
      std::string::npos);
}

TEST_F(CheckpointWriterTest, ACopyThatFailsOnOneRankIsHeardOfByAll) {
  Own({"uid", 1});
  const auto begin = std::chrono::steady_clock::now();
  for (int bad : {0, 1}) {
    auto zero = Make(0, 2), one = Make(1, 2);
    const auto slices = [&](int rank) {
      std::vector<SourceSlice> mine = Slices(rank, 2);
      if (rank == bad) mine[0].copy = [](float*) { throw OutOfMemoryError("it has no room"); };
      return mine;
    };
    zero->Begin(5 + bad, slices(0), {});
    one->Begin(5 + bad, slices(1), {});
    EXPECT_THROW((bad == 0 ? zero : one)->Finish(), OutOfMemoryError);
    EXPECT_NE(MessageOf<ToldError>([&] { (bad == 0 ? one : zero)->Finish(); }).find("it has no room"),
              std::string::npos);
  }
  EXPECT_LT(std::chrono::steady_clock::now() - begin, seconds(10)) << "of the silence that a rank may keep";
}

// The mount point stays, and takes files of its own.
TEST_F(CheckpointWriterTest, ARankWhoseDirectoryWasUnmountedFailsTheSave) {
  Own({"uid", 1});
  auto zero = Make(0, 2);
  const fs::path shared = std::exchange(directory_, directory_ / "mount-point");
  fs::create_directories(directory_);
  auto one = Make(1, 2);
  const fs::path empty = std::exchange(directory_, shared);
  zero->Begin(5, Slices(0, 2), {});
  one->Begin(5, Slices(1, 2), {});
  EXPECT_THROW(one->Finish(), StorageError);
  EXPECT_THROW(zero->Finish(), ToldError);
  EXPECT_TRUE(ListSteps(shared).empty());
  EXPECT_TRUE(fs::is_empty(empty));
}

TEST_F(CheckpointWriterTest, ACopyOfAStepUnderAnotherNameIsBad) {
  Own({"uid", 1});
  auto writer = Make(0, 1);
  writer->Begin(100, Slices(0, 1), {});
  writer->Finish();
  fs::copy(directory_ / StepName(100), directory_ / StepName(200), fs::copy_options::recursive);
  fs::copy(directory_ / StepName(100), directory_ / "kept", fs::copy_options::recursive);
  EXPECT_NO_THROW(RequireNamedStep(VerifyCheckpoint(directory_ / StepName(100))));
  EXPECT_NO_THROW(RequireNamedStep(VerifyCheckpoint(directory_ / "kept")));
  EXPECT_THROW(RequireNamedStep(VerifyCheckpoint(directory_ / StepName(200))), DamagedError);
  const Choice choice = ChooseCheckpoint(directory_);
  EXPECT_EQ(choice.found->manifest.step, 100);
  EXPECT_EQ(choice.skipped.size(), 1u);
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

TEST_F(CheckpointWriterTest, AWriterThatGoesSaysSoToTheOthers) {
  Own({"uid", 1});
  auto zero = Make(0, 3), one = Make(1, 3);
  zero->Begin(5, Slices(0, 3), {});
  one->Begin(5, Slices(1, 3), {});
  zero.reset();
  EXPECT_NE(MessageOf<PeerError>([&] { one->Finish(); }).find("rank 0 ended before step-00000005 was complete"),
            std::string::npos);
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

// Somebody has a file of it open, on a file system where that keeps a folder's name: room goes with each save.
TEST_F(CheckpointWriterTest, AnOldStepThatKeepsItsNameIsNamedOnce) {
  Own({"uid", 1});
  for (int64_t step : {5, 15}) fs::create_directories(Unfinished({"uid", 1}, step).string() + "-old/in the way");
  auto writer = Make(0, 1);
  testing::internal::CaptureStderr();
  for (int64_t step : {5, 15, 25, 35, 45}) {
    writer->Begin(step, Slices(0, 1), {});
    writer->Finish();
  }
  const std::string said = testing::internal::GetCapturedStderr();
  EXPECT_EQ(ListSteps(directory_), (std::vector<int64_t>{45, 35, 15, 5}));
  EXPECT_NE(said.find("warning: cannot remove " + (directory_ / StepName(5)).string()), std::string::npos) << said;
  EXPECT_EQ(said.find("warning", said.find("warning") + 1), std::string::npos) << said;
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
  struct StoreOfTheVerdict : MemoryStore {
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
  const auto watched = std::make_shared<StoreOfTheVerdict>();
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

}  // namespace
}  // namespace trainyard
