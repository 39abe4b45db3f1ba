#include "trainer/checkpoint/diff.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <limits>

#include "trainer/base/file.h"
#include "trainer/checkpoint/fence.h"
#include "trainer/checkpoint/writer.h"

namespace trainyard {
namespace {

constexpr float kNan = std::numeric_limits<float>::quiet_NaN();

class DiffTest : public testing::Test {
 protected:
  DiffTest() : directory_(fs::path(testing::TempDir()) / ("diff-" + std::to_string(getpid()))) {}
  ~DiffTest() override { fs::remove_all(directory_); }

  struct Tensor {
    std::vector<int64_t> shape;
    std::vector<float> values;
  };
  // A checkpoint of these tensors.
  OpenCheckpoint Save(const std::string& name, const std::map<std::string, Tensor>& tensors) {
    const fs::path at = directory_ / name;
    fs::create_directories(at);
    Fence::Take(at, {"uid", 1});
    Fence::Record(at, {"uid", 1}, 0, "");
    CheckpointWriter writer({.directory = at, .writer = {"uid", 1}}, std::make_shared<MemoryStore>());
    std::vector<SourceSlice> slices;
    for (const auto& [key, tensor] : tensors)
      slices.push_back({key, tensor.shape, 0, static_cast<int64_t>(tensor.values.size()),
                        [&tensor](float* to) { std::ranges::copy(tensor.values, to); }});
    writer.Begin(1, slices, {});
    writer.Finish();
    return VerifyCheckpoint(at / "step-00000001");
  }

  fs::path directory_;
};

TEST_F(DiffTest, TheLargestDifferenceStandsFirstAndWhatIsEqualIsCounted) {
  const OpenCheckpoint one = Save("one", {{"a", {{2}, {1, 2}}},
                                          {"b", {{2}, {1, kNan}}},
                                          {"c", {{2}, {1, 2}}},
                                          {"d", {{2}, {1, 2}}},
                                          {"e", {{2}, {0.f, 2}}},
                                          {"z", {{2}, {1, 2}}}});
  const OpenCheckpoint two = Save("two", {{"a", {{2}, {1, 2.5}}},
                                          {"b", {{2}, {1, kNan}}},
                                          {"c", {{2}, {4, 3}}},
                                          {"d", {{2, 1}, {1, 2}}},
                                          {"e", {{2}, {-0.f, 2}}},
                                          {"f", {{2}, {1, 2}}},
                                          {"z", {{2}, {1, kNan}}}});
  const CheckpointDifference found = Compare(one, two);
  std::vector<std::string> lines;
  for (const TensorDifference& tensor : found.tensors) lines.push_back(tensor.key + ": " + tensor.text);
  EXPECT_EQ(lines, (std::vector<std::string>{"d: of another shape", "f: only in " + two.path.string(),
                                             "z: largest difference inf, 1 of 2 values differ",
                                             "c: largest difference 3, 2 of 2 values differ",
                                             "a: largest difference 0.5, 1 of 2 values differ"}));
  EXPECT_EQ(found.equal, 2u) << "zeros of either sign are, and values that are no numbers on both sides";
}

}  // namespace
}  // namespace trainyard
