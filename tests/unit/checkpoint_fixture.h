// A directory of checkpoints, and writers of one small tensor into it.
#ifndef TRAINYARD_TESTS_UNIT_CHECKPOINT_FIXTURE_H_
#define TRAINYARD_TESTS_UNIT_CHECKPOINT_FIXTURE_H_

#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <functional>
#include <memory>
#include <numeric>
#include <string>
#include <vector>

#include "trainer/base/file.h"
#include "trainer/checkpoint/fence.h"
#include "trainer/checkpoint/reader.h"
#include "trainer/checkpoint/writer.h"

namespace trainyard {

class CheckpointFixture : public testing::Test {
 protected:
  CheckpointFixture()
      : directory_(fs::path(testing::TempDir()) / ("checkpoints-" + std::to_string(getpid()))), values_(100) {
    fs::create_directories(directory_);
    std::iota(values_.begin(), values_.end(), 0.f);
  }
  ~CheckpointFixture() override { fs::remove_all(directory_); }

  // Takes the directory over and starts from nothing.
  void Own(const Writer& writer) {
    Fence::Take(directory_, writer);
    Fence::Record(directory_, writer, 0, "");
  }
  std::unique_ptr<CheckpointWriter> Make(int rank, int world, int64_t attempt = 1,
                                         std::chrono::seconds silence = std::chrono::seconds(20)) {
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

  // What the Error that `call` throws says.
  template <class Error>
  static std::string MessageOf(const std::function<void()>& call) {
    try {
      call();
    } catch (const Error& error) {
      return error.what();
    }
    ADD_FAILURE() << "it threw nothing";
    return "";
  }

  fs::path directory_;
  std::shared_ptr<MemoryStore> store_ = std::make_shared<MemoryStore>();
  std::vector<float> values_;
};

}  // namespace trainyard

#endif  // TRAINYARD_TESTS_UNIT_CHECKPOINT_FIXTURE_H_
