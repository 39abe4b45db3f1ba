// `trainyard checkpoint ls|verify`; diff.h is a file of its own.
#ifndef TRAINYARD_TRAINER_CHECKPOINT_COMMANDS_H_
#define TRAINYARD_TRAINER_CHECKPOINT_COMMANDS_H_

#include <filesystem>

namespace trainyard {

// Each prints, and returns the exit code. They throw StorageError and ConfigError.

// The steps with writer, size and state, as far as manifests, fence and sizes show it, and what was moved aside.
int ListCheckpoints(const std::filesystem::path& path);
// Checks every file, the fence included; 74 when one is bad, or when no fence lists the writer of a step.
int VerifyCheckpoints(const std::filesystem::path& path);

}  // namespace trainyard

#endif  // TRAINYARD_TRAINER_CHECKPOINT_COMMANDS_H_
