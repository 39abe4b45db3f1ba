#include "trainer/task/sample_cache.h"

#include <gtest/gtest.h>

#include <cstdlib>

#include "trainer/base/error.h"
#include "trainer/base/file.h"

namespace trainyard {
namespace {

std::string Refusal(const CacheConfig& cache) {
  try {
    WindowOf(cache, 20, 100);
    return "";
  } catch (const ConfigError& error) {
    return error.what();
  }
}

TEST(SampleCache, AnEmptyWindowSaysWhichFieldAndHowMuch) {
  EXPECT_EQ(WindowOf({.rate = 0.5, .replace = 0.1}, 20, 100), (Window{10, 1}));
  EXPECT_EQ(WindowOf({.rate = 0.5, .replace = 0.1, .bytes = 600}, 20, 100), (Window{5, 1}));
  EXPECT_EQ(Refusal({.rate = 0.04}), "data.cache.rate: 0.04 of 20 samples is none; expected at least 0.05");
  EXPECT_EQ(Refusal({.bytes = 150}),
            "data.cache.bytes: 150 hold no window: a prepared sample takes 100, and one more is prepared for the next "
            "epoch");
}

// MONAI refuses a rate of 0 as well.
TEST(SampleCache, AWindowThatNeverMovesIsRefused) {
  EXPECT_EQ(Refusal({.rate = 0.5, .replace = 0}),
            "data.cache.replace: 0 leaves the same 10 of 20 samples in every epoch, and the others are never trained "
            "on; expected more than 0, or a window of all samples");
  EXPECT_TRUE(Refusal({.replace = 0, .bytes = 1000}).starts_with("data.cache.replace: 0 leaves the same 10 of 20"));
  EXPECT_EQ(WindowOf({.replace = 0}, 20, 100), (Window{20, 0})) << "all of them";
  EXPECT_EQ(WindowOf({.rate = 0.5, .replace = 1e-9}, 20, 100), (Window{10, 1})) << "rounded up";
}

TEST(SampleCache, TheRanksOfANodeShareAFolderOfTheRunAndThePreparation) {
  Config config;
  config.run.dir = "/runs/a";
  const CacheConfig cache{.rate = 0.5, .replace = 0.2, .bytes = {}, .dir = "/scratch"};
  setenv("LOCAL_WORLD_SIZE", "4", 1);
  setenv("LOCAL_RANK", "3", 1);
  const SmartCacheOptions options = CacheOptionsOf(config, cache, 20, 100, "area 2 x 2");
  EXPECT_EQ(options.share, 3);
  EXPECT_EQ(options.shares, 4);
  setenv("LOCAL_RANK", "1", 1);
  EXPECT_EQ(CacheOptionsOf(config, cache, 20, 100, "area 2 x 2").folder, options.folder);
  EXPECT_EQ(options.folder.parent_path(), "/scratch");
  EXPECT_NE(CacheOptionsOf(config, cache, 20, 100, "area 4 x 4").folder, options.folder);
  unsetenv("LOCAL_WORLD_SIZE");
  unsetenv("LOCAL_RANK");
  EXPECT_EQ(CacheOptionsOf(config, {.rate = 0.5}, 20, 100, "").folder, "");
  EXPECT_EQ(CacheOptionsOf(config, {.rate = 0.5}, 20, 100, "").shares, 1);
}

TEST(SampleCache, ARunInAnotherWorkingDirectoryIsAnotherRun) {
  Config config;
  config.run.dir = "runs/a";
  const CacheConfig cache{.rate = 0.5, .replace = 0.2, .bytes = {}, .dir = "/scratch"};
  const fs::path here = fs::current_path();
  const auto folder_in = [&](const fs::path& directory) {
    fs::current_path(directory);
    fs::path folder = CacheOptionsOf(config, cache, 20, 100, "area 2 x 2").folder;
    fs::current_path(here);
    return folder;
  };
  EXPECT_NE(folder_in("/tmp"), folder_in("/usr"));
  config.run.dir = "./runs/a";
  const fs::path same = folder_in("/tmp");
  config.run.dir = "/tmp/runs/a";
  EXPECT_EQ(folder_in("/usr"), same);
  setenv("TRAINYARD_JOB_UID", "another", 1);  // whose pods have the same paths
  EXPECT_NE(folder_in("/usr"), same);
  unsetenv("TRAINYARD_JOB_UID");
}

}  // namespace
}  // namespace trainyard
