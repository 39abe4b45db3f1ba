#include "trainer/checkpoint/fence.h"

#include <gtest/gtest.h>

#include "trainer/base/error.h"
#include "trainer/base/file.h"

namespace trainyard {
namespace {

const Writer kA1{"aaaa", 1}, kA2{"aaaa", 2}, kA3{"aaaa", 3}, kB1{"bbbb", 1};

Fence::Owner Started(const Writer& writer, int64_t resumed_step) { return {writer, resumed_step, ""}; }
Fence::Owner Choosing(const Writer& writer) { return {writer, {}, ""}; }

TEST(Fence, OnlyListedWritersAboveTheirStartAreReadable) {
  const Fence fence{{Started(kA1, 0), Started(kA2, 10)}};
  EXPECT_EQ(fence.Of(kA1, 5), Standing::kReadable);
  EXPECT_EQ(fence.Of(kA1, 10), Standing::kReadable);
  EXPECT_EQ(fence.Of(kA1, 15), Standing::kFencedOff) << "written after attempt 2 had started from step 10";
  EXPECT_EQ(fence.Of(kA2, 10), Standing::kFencedOff);
  EXPECT_EQ(fence.Of(kA2, 11), Standing::kReadable);
  EXPECT_EQ(fence.Of(kB1, 11), Standing::kUnlisted);
}

TEST(Fence, AFreshStartFencesEverythingBefore) {
  const Fence fence{{Started(kA1, 0), Started(kB1, 0)}};
  EXPECT_EQ(fence.Of(kA1, 5), Standing::kFencedOff);
  EXPECT_EQ(fence.Of(kB1, 5), Standing::kReadable);
}

TEST(Fence, AnOwnerThatHasRecordedNothingChangesNoStanding) {
  const Fence fence{{Started(kA1, 0), Choosing(kA2), Started(kA3, 10), Choosing(kB1)}};
  EXPECT_EQ(fence.Of(kA1, 10), Standing::kReadable);
  EXPECT_EQ(fence.Of(kA1, 11), Standing::kFencedOff);
  EXPECT_EQ(fence.Of(kA3, 11), Standing::kReadable);
  EXPECT_EQ(fence.Of(kA2, 11), Standing::kUnlisted) << "it cannot have written anything";
  EXPECT_EQ(fence.LastStarted()->writer, kA3);
  EXPECT_FALSE(fence.HasStarted("bbbb"));
}

class FenceFileTest : public testing::Test {
 protected:
  FenceFileTest() : directory_(fs::path(testing::TempDir()) / ("fence-" + std::to_string(getpid()))) {
    fs::create_directories(directory_);
  }
  ~FenceFileTest() override { fs::remove_all(directory_); }
  fs::path directory_;
};

TEST_F(FenceFileTest, OnlyAHigherAttemptTakesOver) {
  Fence::Take(directory_, kA2);
  EXPECT_TRUE(Fence::Read(directory_).IsLast(kA2));
  EXPECT_THROW(Fence::Take(directory_, kA1), PeerError);
  EXPECT_THROW(Fence::Take(directory_, kA2), PeerError);
  Fence::Take(directory_, kA3);
  EXPECT_FALSE(Fence::Read(directory_).IsLast(kA2));
  EXPECT_EQ(Fence::Read(directory_).LastAttempt("aaaa"), 3);
  Fence::Take(directory_, kB1);  // another job takes the directory over
  EXPECT_TRUE(Fence::Read(directory_).IsLast(kB1));
}

TEST_F(FenceFileTest, OnlyTheLastOwnerRecords) {
  Fence::Take(directory_, kA1);
  EXPECT_EQ(Fence::Read(directory_).owners[0].resumed_step, std::nullopt);
  Fence::Record(directory_, kA1, 7, "/elsewhere/step-00000007");
  EXPECT_EQ(Fence::Read(directory_).owners[0].resumed_step, 7);
  EXPECT_EQ(Fence::Read(directory_).owners[0].source, "/elsewhere/step-00000007");
  Fence::Take(directory_, kA2);
  EXPECT_THROW(Fence::Record(directory_, kA1, 7, ""), PeerError);
}

TEST_F(FenceFileTest, AFenceThatIsGoneIsNoPeersDoing) {
  Fence::Take(directory_, kA1);
  fs::remove(directory_ / "fence");
  EXPECT_THROW(Fence::RequireOwner(directory_, kA1), StorageError);
}

TEST_F(FenceFileTest, ADamagedFenceIsAnErrorWithTheRemedy) {
  Fence::Take(directory_, kA1);
  const std::string good = ReadFile(directory_ / "fence");
  for (size_t bit = 0; bit < good.size() * 8; ++bit) {
    std::string bad = good;
    bad[bit / 8] = static_cast<char>(bad[bit / 8] ^ 1 << bit % 8);
    WriteFileAtomic(directory_ / "fence", bad);
    try {
      Fence::Read(directory_);
      ADD_FAILURE() << "bit " << bit << " is not noticed";
    } catch (const StorageError& error) {
      EXPECT_NE(std::string(error.what()).find("checkpoint.resume"), std::string::npos);
    }
  }
  WriteFileAtomic(directory_ / "fence", "{\"owners\": 3}");
  EXPECT_THROW(Fence::Read(directory_), StorageError);
}

TEST_F(FenceFileTest, TheLockIsHeldByOneAndWaitsNotForEver) {
  auto held = std::make_unique<FenceLock>(directory_);
  EXPECT_THROW(FenceLock(directory_, {}, std::chrono::milliseconds(20)), PeerError);
  EXPECT_THROW(FenceLock(directory_, [] { return true; }), StoppedError);
  held.reset();
  FenceLock(directory_, {}, std::chrono::milliseconds(20));
}

// Only a file system that has no locks is gone on with unlocked.
TEST(Fence, WhatAnErrorOfFlockSays) {
  for (int error : {EWOULDBLOCK, EINTR}) EXPECT_EQ(LockAnswerOf(error), LockAnswer::kHeld) << error;
  for (int error : {EOPNOTSUPP, ENOTSUP, ENOSYS, EINVAL}) EXPECT_EQ(LockAnswerOf(error), LockAnswer::kNoLocks) << error;
  for (int error : {ENOLCK, EIO, ESTALE, EACCES, EBADF}) EXPECT_EQ(LockAnswerOf(error), LockAnswer::kTrouble) << error;
}

}  // namespace
}  // namespace trainyard
