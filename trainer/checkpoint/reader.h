// Finding and reading checkpoints.
#ifndef TRAINYARD_TRAINER_CHECKPOINT_READER_H_
#define TRAINYARD_TRAINER_CHECKPOINT_READER_H_

#include <cstdint>
#include <filesystem>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "trainer/checkpoint/manifest.h"

namespace trainyard {

struct FoundCheckpoint {
  std::filesystem::path path;
  Manifest manifest;
};

// Committed steps in a directory, newest first, whatever their state.
std::vector<int64_t> ListSteps(const std::filesystem::path& directory);

// Reads the manifest and checks every file's size and checksum, several at once.
// Throws StorageError naming what is wrong.
FoundCheckpoint VerifyCheckpoint(const std::filesystem::path& path);

struct Choice {
  std::optional<FoundCheckpoint> found;  // nothing: the directory holds no step
  std::vector<std::string> skipped;      // one line per step that was passed over, and why
};

// The newest step of `directory` that is whole and readable under its fence. Throws StorageError
// when steps exist of which none is good: that is never a silent fresh start. Steps that an old
// attempt wrote after a newer one had started do not count as existing.
Choice ChooseCheckpoint(const std::filesystem::path& directory);

// Where a tensor goes: as many values as the shape says.
struct TensorTarget {
  std::vector<int64_t> shape;
  std::span<float> values;
};

// Copies the saved tensors of these keys into memory. Throws StorageError when one is missing or
// has another shape, or when a file does not hold what the manifest says; shapes and keys are
// checked before anything is copied.
void LoadTensors(const FoundCheckpoint& checkpoint, const std::map<std::string, TensorTarget>& targets);

}  // namespace trainyard

#endif  // TRAINYARD_TRAINER_CHECKPOINT_READER_H_
