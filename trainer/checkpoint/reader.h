// Finding, checking and reading checkpoints.
#ifndef TRAINYARD_TRAINER_CHECKPOINT_READER_H_
#define TRAINYARD_TRAINER_CHECKPOINT_READER_H_

#include <cstdint>
#include <filesystem>
#include <functional>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "trainer/base/input_file.h"
#include "trainer/checkpoint/fence.h"
#include "trainer/checkpoint/manifest.h"
#include "trainer/checkpoint/safetensors.h"

namespace trainyard {

// Throws DamagedError naming what is wrong with a manifest, also where there is none, and another StorageError where it
// could not be read: then nothing is known of it.
Manifest ReadManifest(const std::filesystem::path& file);

// A checkpoint whose manifest is checked. Files are open once they are verified, and stay readable
// whatever happens to their names.
struct OpenCheckpoint {
  std::filesystem::path path;
  Manifest manifest;
  std::map<std::string, SafetensorsFile> files;

  // Throws as ReadManifest does.
  static OpenCheckpoint Open(const std::filesystem::path& path);
  std::vector<std::string> FileNames() const;
};

// The step that a folder is called after; nothing: it is called otherwise.
std::optional<int64_t> StepOf(const std::filesystem::path& folder);
// Throws DamagedError where the folder is called after another step than the manifest's: a copy, or renamed.
void RequireNamedStep(const OpenCheckpoint& checkpoint);

// Committed steps in a directory, newest first, whatever their state.
std::vector<int64_t> ListSteps(const std::filesystem::path& directory);

// Checks these files, several at once: sizes, checksums, and that each holds the slices that the
// manifest names, in their types and sizes. Opens them. Throws DamagedError naming what is wrong, and another
// StorageError where a file could not be read.
void VerifyFiles(OpenCheckpoint& checkpoint, std::span<const std::string> names, const Tick& tick = {});

// All files. How a choice is verified when several ranks share the work, the caller says.
OpenCheckpoint VerifyCheckpoint(const std::filesystem::path& path);
using Verify = std::function<void(OpenCheckpoint&)>;
void VerifyAllFiles(OpenCheckpoint& checkpoint);

struct Choice {
  std::optional<OpenCheckpoint> found;  // nothing: there is nothing to go on from
  bool named = false;                   // it is no step of the directory, but what checkpoint.resume had named
  std::vector<std::string> skipped;     // one line per step that was passed over, and why
};

// The newest step of `directory` that is whole and readable under its fence; else what its last
// owner went on from. Only bad steps (DamagedError), and steps that a later owner did not go on from, are passed over.
// Throws StorageError, with the remedy: for a step that could not be looked at, for one that no fence lists, when bad
// steps exist and no good one, and when the step that the last owner went on from is gone. None of these is a fresh
// start. `remedy` is said of a step that no fence lists.
Choice ChooseCheckpoint(const std::filesystem::path& directory, const Verify& verify = VerifyAllFiles,
                        const std::string& remedy = kLostFenceRemedy);

// What a person means by a path: a checkpoint, a directory of them (the newest good one), or a run's
// directory with `checkpoints` in it. Throws ConfigError, beginning with `field`, when it holds none.
OpenCheckpoint FindCheckpoint(const std::string& field, const std::filesystem::path& path,
                              const Verify& verify = VerifyAllFiles);
// The directory of checkpoints that such a path means; `path` itself when it is a checkpoint.
std::filesystem::path CheckpointsAt(const std::string& field, const std::filesystem::path& path);

// Opens those files that are not open yet: of a checkpoint whose checksums other ranks have verified. Throws as
// VerifyFiles does.
void OpenVerified(OpenCheckpoint& checkpoint);

// Where a part of a tensor goes, or the whole: its elements from `begin` on, as many as there are `values`.
struct TensorTarget {
  std::vector<int64_t> shape;  // of the whole tensor
  std::span<float> values;
  int64_t begin = 0;
};
using TensorTargets = std::multimap<std::string, TensorTarget>;

// Copies those saved values of these keys that lie in open files; returns how many. Throws
// StorageError when a key is missing or has another shape; that is checked before anything is copied.
int64_t LoadOpenFiles(const OpenCheckpoint& checkpoint, const TensorTargets& targets, const Tick& tick = {});

// The same; throws StorageError unless every value was copied.
void LoadTensors(const OpenCheckpoint& checkpoint, const TensorTargets& targets, const Tick& tick = {});

}  // namespace trainyard

#endif  // TRAINYARD_TRAINER_CHECKPOINT_READER_H_
