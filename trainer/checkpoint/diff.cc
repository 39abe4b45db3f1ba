#include "trainer/checkpoint/diff.h"

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <limits>
#include <optional>
#include <set>

#include "trainer/base/file.h"
#include "trainer/base/text.h"

namespace trainyard {
namespace {

constexpr size_t kShown = 20;
constexpr double kNone = std::numeric_limits<double>::infinity();

std::vector<float> Values(const OpenCheckpoint& checkpoint, const std::string& key) {
  const TensorInfo& info = checkpoint.manifest.tensors.at(key);
  std::vector<float> values(info.slices.empty() ? 0 : static_cast<size_t>(info.slices.back().end));
  LoadTensors(checkpoint, {{key, {info.shape, values}}});
  return values;
}

// Two values that are no numbers are equal.
double Distance(float a, float b) {
  if (a == b || (std::isnan(a) && std::isnan(b))) return 0;
  const double distance = std::abs(static_cast<double>(a) - b);
  return std::isnan(distance) ? kNone : distance;
}

std::optional<TensorDifference> CompareValues(const std::string& key, const std::vector<float>& a,
                                              const std::vector<float>& b) {
  double largest = 0;
  size_t differ = 0;
  for (size_t i = 0; i < a.size(); ++i) {
    const double distance = Distance(a[i], b[i]);
    differ += distance > 0;
    largest = std::max(largest, distance);
  }
  if (differ == 0) return {};
  return TensorDifference{key, largest,
                          Format("largest difference %g, %zu of %zu values differ", largest, differ, a.size())};
}

std::optional<TensorDifference> CompareTensor(const std::string& key, const OpenCheckpoint& first,
                                              const OpenCheckpoint& second) {
  const auto a = first.manifest.tensors.find(key), b = second.manifest.tensors.find(key);
  const bool in_first = a != first.manifest.tensors.end(), in_second = b != second.manifest.tensors.end();
  if (!in_first || !in_second)
    return TensorDifference{key, kNone, "only in " + (in_first ? first : second).path.string()};
  if (a->second.shape != b->second.shape) return TensorDifference{key, kNone, "of another shape"};
  return CompareValues(key, Values(first, key), Values(second, key));
}

}  // namespace

CheckpointDifference Compare(const OpenCheckpoint& first, const OpenCheckpoint& second) {
  std::set<std::string> keys;
  for (const OpenCheckpoint* checkpoint : {&first, &second}) {
    for (const auto& [key, info] : checkpoint->manifest.tensors) keys.insert(key);
  }
  CheckpointDifference result;
  for (const std::string& key : keys) {
    if (const auto difference = CompareTensor(key, first, second)) {
      result.tensors.push_back(*difference);
    } else {
      ++result.equal;
    }
  }
  std::stable_sort(result.tensors.begin(), result.tensors.end(),
                   [](const TensorDifference& a, const TensorDifference& b) { return a.largest > b.largest; });
  return result;
}

int DiffCheckpoints(const std::filesystem::path& first, const std::filesystem::path& second, bool all) {
  const CheckpointDifference found =
      Compare(FindCheckpoint("checkpoint diff", first), FindCheckpoint("checkpoint diff", second));
  const size_t differ = found.tensors.size(), shown = all ? differ : std::min(kShown, differ);
  for (size_t i = 0; i < shown; ++i)
    std::printf("%s: %s\n", found.tensors[i].key.c_str(), found.tensors[i].text.c_str());
  if (shown < differ) std::printf("and %zu more (--all shows them)\n", differ - shown);
  std::printf("%zu tensors equal\n%zu of %zu tensors differ\n", found.equal, differ, differ + found.equal);
  return differ > 0 ? 1 : 0;
}

}  // namespace trainyard
