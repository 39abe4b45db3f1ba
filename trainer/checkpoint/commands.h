// `trainyard checkpoint ls|verify|export|diff`.
#ifndef TRAINYARD_TRAINER_CHECKPOINT_COMMANDS_H_
#define TRAINYARD_TRAINER_CHECKPOINT_COMMANDS_H_

#include <filesystem>
#include <string>

namespace trainyard {

// Returns the exit code. Throws StorageError and ConfigError.
//   ls     lists the steps of `first` with writer, size and state
//   verify checks every file of `first`, a checkpoint or a directory of them; 74 when one is bad
//   export writes the weights of `first` to `out`
//   diff   compares `first` with `second` tensor by tensor; 1 when they differ
int RunCheckpointCommand(const std::string& command, const std::filesystem::path& first,
                         const std::filesystem::path& second, const std::filesystem::path& out);

}  // namespace trainyard

#endif  // TRAINYARD_TRAINER_CHECKPOINT_COMMANDS_H_
