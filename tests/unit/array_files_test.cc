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

// What the header claims is there, as holes of the file: it would be 16 GiB of memory.
TEST_F(ArrayFilesTest, NpyRefusesAHugeShapeOfHoles) {
  const std::vector<int64_t> shape = {1 << 16, 1 << 16};
  WriteNpy(directory_ / "a.npy", shape, {}, false);
  fs::resize_file(directory_ / "a.npy", uint64_t{1} << 35);
  EXPECT_THROW(ReadNpy(directory_ / "a.npy"), DataError);
}

TEST_F(ArrayFilesTest, NpyOfSeveralPiecesComesBack) {
  std::vector<int32_t> values(300'001);
  for (size_t i = 0; i < values.size(); ++i) values[i] = static_cast<int32_t>(i * 7 % 1'000'003);
  const std::vector<int64_t> shape = {std::ssize(values)};
  WriteNpy(directory_ / "a.npy", shape, values, false);
  EXPECT_EQ(ReadNpy(directory_ / "a.npy").values, values);
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
    ad::ReadHistories(directory_ / "a.hdf5", ad::MakeTaskSet("darkroom").tasks, {});
    FAIL();
  } catch (const DataError& error) {
    EXPECT_NE(std::string(error.what()).find("of 8388608 streams for each of 81 tasks are more than the file holds"),
              std::string::npos)
        << error.what();
  }
}

// A task with the goal in (1, 1): as it is written, and as it is read.
class HistoriesTest : public ArrayFilesTest {
 protected:
  HistoriesTest() : histories_(1, 1, 160) {
    ad::AdEpsilon(rooms_[0], 0, 1, histories_, [](int64_t) {});
  }
  ad::Transition& Step(size_t step) { return histories_.at(0, 0)[step]; }
  ad::Histories Read(const ad::Options& options = {}) {
    ad::WriteHdf5(histories_, directory_ / "h.hdf5");
    return ad::ReadHistories(directory_ / "h.hdf5", rooms_, options);
  }
  std::string Refusal(const ad::Options& options = {}) {
    try {
      Read(options);
      return "";
    } catch (const DataError& error) {
      const std::string what = error.what(), file = (directory_ / "h.hdf5").string() + ": ";
      return what.starts_with(file) ? what.substr(file.size()) : what;
    }
  }

  std::vector<ad::DarkRoom> rooms_{{.goal = {1, 1}}};
  ad::Histories histories_;
};

TEST_F(HistoriesTest, ThoseOutsideTheGridAreRefused) {
  EXPECT_EQ(Read().Fingerprint(), histories_.Fingerprint());
  ad::Options cut;
  cut.max_transitions = 25;
  EXPECT_EQ(ad::ReadHistories(directory_, rooms_, cut).length(), 25);
  rooms_.push_back({.goal = {1, 2}});
  EXPECT_EQ(Refusal(), "1/states: no such data set") << "a task is missing";
  rooms_.pop_back();
  Step(7).row = 9;
  EXPECT_EQ(Refusal(), "0/states: step 7 of stream 0 is 9, outside [0, 9)");
}

TEST_F(HistoriesTest, ThoseOfAnotherEnvironmentOrOrderAreRefused) {
  const std::string advice =
      " in task 0 of task.env darkroom; are they histories of another environment, or its tasks in another order?";
  const ad::Histories whole = histories_;
  Step(2) = {.row = 3, .column = 4, .action = 3, .reward = 0, .next_row = 3, .next_column = 4, .done = 0, .marker = 0};
  EXPECT_EQ(Refusal(),
            "0/next_states: step 2 of stream 0 is (3, 4), expected (3, 3), where action 3 leads from (3, 4)" + advice);
  Step(2) = {.row = 0, .column = 1, .action = 0, .reward = 0, .next_row = 1, .next_column = 1, .done = 0, .marker = 0};
  EXPECT_EQ(Refusal(), "0/rewards: step 2 of stream 0 is 0, expected 1, in (1, 1) where the goal is (1, 1)" + advice);
  histories_ = whole;
  rooms_[0].goal = {1, 2};
  EXPECT_NE(Refusal().find("/rewards"), std::string::npos) << "the goals' order";
  rooms_[0] = {.goal = {1, 1}, .meaning = {1, 0, 2, 3, 4}};
  EXPECT_NE(Refusal().find("/next_states"), std::string::npos) << "another permutation";
}

TEST_F(HistoriesTest, MoreTasksThanTheEnvironmentHasAreRefused) {
  ad::Histories two(2, 1, 40);
  for (int64_t task = 0; task < 2; ++task) ad::AdEpsilon(rooms_[0], task, 1, two, [](int64_t) {});
  ad::WriteHdf5(two, directory_ / "h.hdf5");
  ad::WriteNpyFolders(two, directory_ / "npy");
  for (const auto& [path, array] :
       {std::pair(directory_ / "h.hdf5", ": 1/actions"), std::pair(directory_ / "npy", "/env-001/actions.npy")}) {
    try {
      ad::ReadHistories(path, rooms_, {});
      FAIL();
    } catch (const DataError& error) {
      EXPECT_EQ(error.what(), path.string() + array +
                                  ": task.env darkroom has the tasks 0 to 0 alone; are they histories of another "
                                  "environment?");
    }
  }
}

// The original guide's files hold the reset behind an episode.
TEST_F(HistoriesTest, AResetIsNoNextState) {
  const std::string as_played = histories_.Fingerprint();
  for (const size_t t : {19u, 39u}) {
    Step(t).next_row = Step(t).next_column = 4;
  }
  testing::internal::CaptureStderr();
  EXPECT_EQ(Read().Fingerprint(), as_played);
  const std::string said = testing::internal::GetCapturedStderr();
  EXPECT_NE(said.find("0/next_states and the other tasks': behind 2 episodes stands the state that the next one starts "
                      "in; where the last action led is taken instead\n"),
            std::string::npos)
      << said;
  Step(18).next_row = Step(18).next_column = 4;
  EXPECT_NE(Refusal(), "") << "within an episode";
}

TEST_F(HistoriesTest, RegionsAreThoseOfCompressedMode) {
  ad::Options compressed;
  compressed.mode = "compressed";
  EXPECT_EQ(Refusal(compressed), "");
  const std::string why =
      ": task.mode compressed is of regions of 80 steps, of which the first has 1, the last 2 and every other 0";
  Step(80).marker = 0;
  EXPECT_EQ(Refusal(compressed), "0/compress_markers: step 80 of stream 0 is 0, expected 1" + why);
  EXPECT_EQ(Refusal(), "") << "nobody reads them";
  Step(39).marker = 2;
  EXPECT_EQ(Refusal(compressed), "0/compress_markers: step 39 of stream 0 is 2, expected 0" + why) << "of 40";
  compressed.max_transitions = 79;
  EXPECT_EQ(Refusal(compressed), "") << "a part of a region";
}

}  // namespace
}  // namespace trainyard
