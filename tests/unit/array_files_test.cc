#include <gtest/gtest.h>
#include <sys/stat.h>

#include "trainer/base/error.h"
#include "trainer/base/file.h"
#include "trainer/base/random.h"
#include "trainer/data/hdf5_file.h"
#include "trainer/data/npy.h"
#include "trainer/task/algorithm_distillation/dark_room.h"
#include "trainer/task/algorithm_distillation/histories.h"
#include "trainer/task/algorithm_distillation/sources.h"

namespace trainyard {
namespace {

class ArrayFilesTest : public testing::Test {
 protected:
  ArrayFilesTest() : directory_(fs::path(testing::TempDir()) / ("arrays-" + std::to_string(getpid()))) {
    fs::create_directories(directory_);
  }
  ~ArrayFilesTest() override { fs::remove_all(directory_); }
  fs::path directory_;
};

const std::vector<int64_t> kShape = {2, 3};
const std::vector<int32_t> kValues = {1, 0, 1, 1, 0, 0};

TEST_F(ArrayFilesTest, NpyComesBack) {
  for (bool as_bool : {false, true}) {
    WriteNpy(directory_ / "a.npy", kShape, kValues, as_bool);
    const IntArray array = ReadNpy(directory_ / "a.npy");
    EXPECT_EQ(array.shape, kShape);
    EXPECT_EQ(array.values, kValues);
  }
}

TEST_F(ArrayFilesTest, NpyRefusesEveryTruncation) {
  WriteNpy(directory_ / "a.npy", kShape, kValues, false);
  const std::string whole = ReadFile(directory_ / "a.npy");
  for (size_t size = 0; size < whole.size(); ++size) {
    WriteFileAtomic(directory_ / "b.npy", whole.substr(0, size));
    EXPECT_THROW(ReadNpy(directory_ / "b.npy"), DataError) << size;
  }
}

// Flipped bits may give other values, but nothing worse than an error.
TEST_F(ArrayFilesTest, NpySurvivesFlippedBits) {
  WriteNpy(directory_ / "a.npy", kShape, kValues, false);
  const std::string whole = ReadFile(directory_ / "a.npy");
  KeyedRandom random(1, "flip");
  for (int i = 0; i < 500; ++i) {
    std::string bad = whole;
    bad[random.Below(bad.size())] ^= static_cast<char>(1 << random.Below(8));
    WriteFileAtomic(directory_ / "b.npy", bad);
    try {
      ReadNpy(directory_ / "b.npy");
    } catch (const DataError&) {
    }
  }
}

TEST_F(ArrayFilesTest, Hdf5ComesBackAndNamesWhatIsMissing) {
  Hdf5File out = Hdf5File::Create(directory_ / "a.hdf5");
  out.Write("3/actions", kShape, kValues);
  out.Write("3/dones", kShape, kValues, true);
  out.Close();
  const Hdf5File in = Hdf5File::Open(directory_ / "a.hdf5");
  EXPECT_EQ(in.Read("3/actions").values, kValues);
  EXPECT_EQ(in.Read("3/dones").values, kValues);
  EXPECT_EQ(in.Read("3/dones").shape, kShape);
  EXPECT_FALSE(in.Has("4/actions"));
  EXPECT_THROW(in.Read("4/actions"), DataError);
  WriteFileAtomic(directory_ / "b.hdf5", "no");
  EXPECT_THROW(Hdf5File::Open(directory_ / "b.hdf5"), DataError);
}

// Nothing that has no end, or nobody at its other end, is opened.
TEST_F(ArrayFilesTest, OnlyFilesAreRead) {
  const fs::path fifo = directory_ / "fifo";
  ASSERT_EQ(mkfifo(fifo.c_str(), 0600), 0);
  for (const fs::path& path : {fifo, fs::path("/dev/zero"), directory_}) {
    EXPECT_THROW(ReadNpy(path), DataError) << path;
    EXPECT_THROW(Hdf5File::Open(path), DataError) << path;
  }
}

TEST_F(ArrayFilesTest, HistoriesOutsideTheGridAreRefused) {
  ad::Histories histories(1, 1, 40);
  ad::AdEpsilon(ad::DarkRoom{.goal = {1, 1}}, 0, 1, histories, [](int64_t) {});
  ad::WriteHdf5(histories, directory_ / "h.hdf5");
  EXPECT_EQ(ad::ReadHistories(directory_ / "h.hdf5", 1, 1000).Fingerprint(), histories.Fingerprint());
  EXPECT_EQ(ad::ReadHistories(directory_, 1, 25).length(), 25);
  EXPECT_THROW(ad::ReadHistories(directory_ / "h.hdf5", 2, 1000), DataError) << "a task is missing";
  histories.at(0, 0)[7].row = 9;
  ad::WriteHdf5(histories, directory_ / "h.hdf5");
  try {
    ad::ReadHistories(directory_ / "h.hdf5", 1, 1000);
    FAIL();
  } catch (const DataError& error) {
    EXPECT_NE(std::string(error.what()).find("0/states: step 7 of stream 0 is 9, outside [0, 9)"), std::string::npos)
        << error.what();
  }
}

}  // namespace
}  // namespace trainyard
