#include "trainer/checkpoint/fence.h"

#include <gtest/gtest.h>

#include "trainer/base/error.h"
#include "trainer/base/file.h"

namespace trainyard {
namespace {

const Writer kA1{"aaaa", 1}, kA2{"aaaa", 2}, kA3{"aaaa", 3}, kB1{"bbbb", 1};

TEST(Fence, OnlyListedWritersAboveTheirStartAreReadable) {
  const Fence fence{{{kA1, 0}, {kA2, 10}}};
  EXPECT_TRUE(fence.Readable(kA1, 5));
  EXPECT_TRUE(fence.Readable(kA1, 10));
  EXPECT_FALSE(fence.Readable(kA1, 15)) << "written after attempt 2 had started from step 10";
  EXPECT_FALSE(fence.Readable(kA2, 10));
  EXPECT_TRUE(fence.Readable(kA2, 11));
  EXPECT_FALSE(fence.Readable(kB1, 11));
}

TEST(Fence, AFreshStartFencesEverythingBefore) {
  const Fence fence{{{kA1, 0}, {kB1, 0}}};
  EXPECT_FALSE(fence.Readable(kA1, 5));
  EXPECT_TRUE(fence.Readable(kB1, 5));
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
  Fence::Take(directory_, kA2, 0);
  EXPECT_TRUE(Fence::Read(directory_).IsLast(kA2));
  EXPECT_THROW(Fence::Take(directory_, kA1, 0), PeerError);
  EXPECT_THROW(Fence::Take(directory_, kA2, 0), PeerError);
  Fence::Take(directory_, kA3, 7);
  EXPECT_FALSE(Fence::Read(directory_).IsLast(kA2));
  EXPECT_EQ(Fence::Read(directory_).LastAttempt("aaaa"), 3);
  Fence::Take(directory_, kB1, 0);  // another job takes the directory over
  EXPECT_TRUE(Fence::Read(directory_).IsLast(kB1));
}

TEST_F(FenceFileTest, AFenceThatIsNoneIsAnError) {
  WriteFileAtomic(directory_ / "fence", "{\"owners\": 3}");
  EXPECT_THROW(Fence::Read(directory_), StorageError);
}

}  // namespace
}  // namespace trainyard
