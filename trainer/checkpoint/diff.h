// `trainyard checkpoint diff`: how the tensors of two checkpoints differ.
#ifndef TRAINYARD_TRAINER_CHECKPOINT_DIFF_H_
#define TRAINYARD_TRAINER_CHECKPOINT_DIFF_H_

#include <filesystem>
#include <string>
#include <vector>

#include "trainer/checkpoint/reader.h"

namespace trainyard {

struct TensorDifference {
  std::string key;
  double largest = 0;  // of the differences of two values; infinite where that is no number, or there are no two
  std::string text;    // for people
};

struct CheckpointDifference {
  std::vector<TensorDifference> tensors;  // the largest difference first, then by key
  size_t equal = 0;                       // so many tensors have the same shape and values
};

// Compares tensor by tensor, and holds one of each at a time. REQUIRES: verified files. Throws StorageError.
CheckpointDifference Compare(const OpenCheckpoint& first, const OpenCheckpoint& second);

// Prints the largest differences, 20 unless `all`, and how many tensors are equal. Returns the exit code: 1 when one
// differs. Throws StorageError and ConfigError.
int DiffCheckpoints(const std::filesystem::path& first, const std::filesystem::path& second, bool all);

}  // namespace trainyard

#endif  // TRAINYARD_TRAINER_CHECKPOINT_DIFF_H_
