#include "trainer/train/places.h"

#include <gtest/gtest.h>
#include <sys/fsuid.h>

#include "trainer/base/error.h"
#include "trainer/base/file.h"
#include "trainer/train/frozen.h"
#include "trainer/train/run_directory.h"

namespace trainyard {
namespace {

constexpr std::pair<const char*, std::string& (*)(Config&)> kFields[] = {
    {"run.dir", [](Config& c) -> std::string& { return c.run.dir; }},
    {"checkpoint.dir", [](Config& c) -> std::string& { return c.checkpoint.dir; }},
    {"data.path", [](Config& c) -> std::string& { return c.data.path; }},
    {"init.from", [](Config& c) -> std::string& { return c.init.from; }},
    {"checkpoint.resume", [](Config& c) -> std::string& { return c.checkpoint.resume; }},
    {"train.record", [](Config& c) -> std::string& { return c.train.record; }},
};

class PlacesTest : public testing::Test {
 protected:
  PlacesTest() : root_(fs::path(testing::TempDir()) / ("places-" + std::to_string(getpid()))) {
    fs::create_directories(root_ / "data");
    fs::create_symlink("away", root_ / "away");  // a link to itself: no look behind it succeeds
    WriteFileAtomic(root_ / "weights", "w");
  }
  ~PlacesTest() override { fs::remove_all(root_); }

  Config Good() const {
    Config config;
    config.run.dir = root_ / "run";
    config.checkpoint.dir = root_ / "checkpoints";
    config.data.path = root_ / "data";
    config.init.from = root_ / "weights";
    config.checkpoint.resume = root_ / "data";
    config.train.record = root_ / "record";
    return config;
  }

  fs::path root_;
};

// The first fails the job for good; the second is tried again.
TEST_F(PlacesTest, WhatIsNotThereIsAMistakeAndWhatCannotBeLookedAtIsNot) {
  EXPECT_NO_THROW(CheckPlaces(Good()));
  for (const auto& [name, field] : kFields) {
    Config config = Good();
    field(config) = root_ / "weights" / "gone";  // below a file nothing can be
    EXPECT_THROW(CheckPlaces(config), ConfigError) << name;
    field(config) = root_ / "away" / "x";
    EXPECT_THROW(CheckPlaces(config), StorageError) << name;
  }
}

// As a user who may not enter the folder. Root may enter every one: his rights to files are put down for the while.
TEST_F(PlacesTest, AFolderThatMayNotBeEnteredIsAMistake) {
  const fs::path closed = root_ / "closed";
  fs::create_directories(closed / "there");
  fs::permissions(closed, fs::perms::none);
  const int before = setfsuid(65534);
  for (const auto& [name, field] : kFields) {
    Config config = Good();
    field(config) = closed / "there";
    EXPECT_THROW(CheckPlaces(config), ConfigError) << name;
  }
  EXPECT_THROW(OpenFrozen(closed / "there", {}), ConfigError);
  setfsuid(static_cast<uid_t>(before));
  fs::permissions(closed, fs::perms::owner_all);
}

// At the start, and not after days of training.
TEST_F(PlacesTest, WhatTheEndOfARunCouldNotWriteIsRefused) {
  const Config config = Good();
  fs::create_directories(root_ / "run" / "export" / "model.safetensors");
  EXPECT_THROW(CheckPlaces(config), ConfigError);
  fs::remove_all(root_ / "run" / "export");
  WriteFileAtomic(root_ / "run" / "export", "a file");
  EXPECT_THROW(CheckPlaces(config), ConfigError);
  fs::remove(root_ / "run" / "export");
  fs::create_directories(root_ / "run" / "best");
  EXPECT_NO_THROW(CheckPlaces(config));
}

// A run that has begun is not one that starts, and a file of init.from that is there is not one that is gone.
TEST_F(PlacesTest, NothingFollowsFromALookThatFails) {
  Config config = Good();
  EXPECT_FALSE(HasBegun(config));
  EXPECT_NE(FingerprintOf(config, "data"), "data");
  config.run.dir = config.init.from = root_ / "away" / "x";
  EXPECT_THROW(HasBegun(config), StorageError);
  EXPECT_THROW(FingerprintOf(config, "data"), StorageError);
  EXPECT_THROW(OpenFrozen(config.init.from, {}), StorageError);
  EXPECT_THROW(OpenFrozen(root_ / "gone", {}), ConfigError);
}

}  // namespace
}  // namespace trainyard
