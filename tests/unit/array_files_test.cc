#include <gtest/gtest.h>
#include <hdf5.h>
#include <sys/stat.h>

#include <fstream>

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

TEST_F(ArrayFilesTest, NpyReadsNoMoreThanItsShape) {
  WriteNpy(directory_ / "a.npy", kShape, kValues, false);
  fs::resize_file(directory_ / "a.npy", uint64_t{1} << 40);  // sparse
  EXPECT_EQ(ReadNpy(directory_ / "a.npy").values, kValues);
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

// A file of strangers names other files in three ways; behind a name may stand anything, a pipe as well.
TEST_F(ArrayFilesTest, Hdf5LeadsToNoOtherFile) {
  const std::string other = (directory_ / "other.hdf5").string(), raw = (directory_ / "raw").string();
  Hdf5File out = Hdf5File::Create(other);
  out.Write("values", kShape, kValues);
  out.Close();
  WriteFileAtomic(raw, std::string(24, '\0'));
  const hid_t file = H5Fcreate((directory_ / "a.hdf5").c_str(), H5F_ACC_TRUNC, H5P_DEFAULT, H5P_DEFAULT);
  const hsize_t dims[] = {2, 3};
  const hid_t space = H5Screate_simple(2, dims, nullptr);
  const auto make = [&](const char* name, hid_t how) {
    H5Dclose(H5Dcreate2(file, name, H5T_STD_I32LE, space, H5P_DEFAULT, how, H5P_DEFAULT));
    H5Pclose(how);
  };
  H5Lcreate_external(other.c_str(), "values", file, "link", H5P_DEFAULT, H5P_DEFAULT);
  H5Lcreate_external(other.c_str(), "/", file, "group", H5P_DEFAULT, H5P_DEFAULT);
  const hid_t external = H5Pcreate(H5P_DATASET_CREATE), virtual_set = H5Pcreate(H5P_DATASET_CREATE);
  H5Pset_external(external, raw.c_str(), 0, 24);
  H5Pset_virtual(virtual_set, space, other.c_str(), "values", space);
  make("external", external);
  make("virtual", virtual_set);
  H5Sclose(space);
  H5Fclose(file);
  const Hdf5File in = Hdf5File::Open(directory_ / "a.hdf5");
  for (const char* name : {"link", "group/values", "external", "virtual"})
    EXPECT_THROW(in.Read(name), DataError) << name;
}

// A chunk that was never written takes no place: a shape alone would ask for gigabytes.
TEST_F(ArrayFilesTest, Hdf5OfMoreThanItHoldsIsNotAllocated) {
  const hid_t file = H5Fcreate((directory_ / "a.hdf5").c_str(), H5F_ACC_TRUNC, H5P_DEFAULT, H5P_DEFAULT);
  const hid_t chunked = H5Pcreate(H5P_DATASET_CREATE);
  const hsize_t chunk[] = {1000, 1}, dims[] = {hsize_t{1} << 31, 1};
  H5Pset_chunk(chunked, 2, chunk);
  const hid_t space = H5Screate_simple(2, dims, nullptr);
  H5Dclose(H5Dcreate2(file, "values", H5T_STD_I8LE, space, H5P_DEFAULT, chunked, H5P_DEFAULT));
  H5Sclose(space);
  H5Pclose(chunked);
  H5Fclose(file);
  WriteFileAtomic(directory_ / "large", std::string(4 << 20, 'x'));
  std::ofstream(directory_ / "a.hdf5", std::ios::app | std::ios::binary) << ReadFile(directory_ / "large");
  try {
    Hdf5File::Open(directory_ / "a.hdf5").Read("values");
    FAIL();
  } catch (const DataError& error) {
    EXPECT_NE(std::string(error.what()).find("its shape exceeds the file"), std::string::npos) << error.what();
  }
}

// Each array alone may be of never-written chunks; all tasks' together would be gigabytes.
TEST_F(ArrayFilesTest, HistoriesOfMoreThanTheFileHoldsAreNotAllocated) {
  const hid_t file = H5Fcreate((directory_ / "a.hdf5").c_str(), H5F_ACC_TRUNC, H5P_DEFAULT, H5P_DEFAULT);
  const hid_t chunked = H5Pcreate(H5P_DATASET_CREATE), links = H5Pcreate(H5P_LINK_CREATE);
  const hsize_t chunk[] = {1, 1000}, dims[] = {2, hsize_t{1} << 23};
  H5Pset_chunk(chunked, 2, chunk);
  H5Pset_create_intermediate_group(links, 1);
  const hid_t space = H5Screate_simple(2, dims, nullptr);
  H5Dclose(H5Dcreate2(file, "0/actions", H5T_STD_I8LE, space, links, chunked, H5P_DEFAULT));
  H5Sclose(space);
  H5Pclose(links);
  H5Pclose(chunked);
  H5Fclose(file);
  try {
    ad::ReadHistories(directory_ / "a.hdf5", 81, 1 << 30);
    FAIL();
  } catch (const DataError& error) {
    EXPECT_NE(std::string(error.what()).find("of 8388608 streams for each of 81 tasks are more than the file holds"),
              std::string::npos)
        << error.what();
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
