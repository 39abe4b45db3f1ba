// `trainyard checkpoint ls|verify|diff`.
#ifndef TRAINYARD_TRAINER_CHECKPOINT_COMMANDS_H_
#define TRAINYARD_TRAINER_CHECKPOINT_COMMANDS_H_

#include <filesystem>
#include <string>

namespace trainyard {

// Returns the exit code. Throws StorageError and ConfigError.
//   ls     lists the steps of `first` with writer, size and state, as far as manifests, fence and sizes show it, and
//   what
//          was moved aside
//   verify checks every file of `first`, the fence included; 74 when one is bad, or when no fence
//          lists the writer of a step
//   diff   compares `first` with `second` tensor by tensor; 1 when they differ
int RunCheckpointCommand(const std::string& command, const std::filesystem::path& first,
                         const std::filesystem::path& second);

}  // namespace trainyard

#endif  // TRAINYARD_TRAINER_CHECKPOINT_COMMANDS_H_
