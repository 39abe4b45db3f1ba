#include "trainer/train/saved_state.h"

#include <gtest/gtest.h>

#include "trainer/base/error.h"

namespace trainyard {
namespace {

using Json = nlohmann::json;

OpenCheckpoint With(const char* pointer, const Json& value) {
  TrainState train;
  train.step = 7;
  OpenCheckpoint checkpoint{"step-00000007", {}, {}};
  checkpoint.manifest.step = 7;
  checkpoint.manifest.state = {{"config", {{"run", {{"seed", 1}}}}},
                               {"data_fingerprint", "abc"},
                               {"global_batch", 8},
                               {"bits", {{"world", 1}}},
                               {"train", train.ToJson()}};
  if (*pointer) checkpoint.manifest.state[Json::json_pointer(pointer)] = value;
  return checkpoint;
}

TEST(SavedState, ComesBack) {
  const SavedState saved = SavedStateOf(With("", {}));
  EXPECT_EQ(saved.config, Json({{"run", {{"seed", 1}}}}));
  EXPECT_EQ(saved.data_fingerprint, "abc");
  EXPECT_EQ(saved.global_batch, 8);
  EXPECT_EQ(saved.train.ToJson(), With("", {}).manifest.state["train"]);
  EXPECT_EQ(saved.bits, Json({{"world", 1}}));
}

// Whoever can write a manifest can seal it: what it says is storage that is not good, and nothing worse.
TEST(SavedState, WhatNoRunWritesIsNotGoneOnFrom) {
  const std::pair<const char*, Json> lies[] = {{"/config", 5},
                                               {"/config", nullptr},
                                               {"/data_fingerprint", 5},
                                               {"/global_batch", 0},
                                               {"/global_batch", int64_t{1} << 62},
                                               {"/global_batch", "8"},
                                               {"/train", 5},
                                               {"/train", Json::object()},
                                               {"/train/step", 8},
                                               {"/train/step", -1},
                                               {"/train/stage", -1},
                                               {"/train/stage", "first"},
                                               {"/train/clean_steps", -1},
                                               {"/train/plateau", nullptr},
                                               {"/train/plateau/multiplier", "nan"},
                                               {"/train/early_stop/bad", "x"},
                                               {"/train/best", "1x"},
                                               {"/train/best", 1},
                                               {"/train/ended_early", 1}};
  for (const auto& [pointer, value] : lies) {
    try {
      SavedStateOf(With(pointer, value));
      FAIL() << pointer << " " << value;
    } catch (const StorageError& error) {
      EXPECT_TRUE(std::string(error.what()).starts_with("step-00000007/manifest.json: ")) << error.what();
    }
  }
  for (const char* field : {"config", "data_fingerprint", "global_batch", "train"}) {
    OpenCheckpoint checkpoint = With("", {});
    checkpoint.manifest.state.erase(field);
    EXPECT_THROW(SavedStateOf(checkpoint), StorageError) << field;
  }
}

}  // namespace
}  // namespace trainyard
