// The places that a configuration names, looked at before anything is started: a mistake is named
// once, at once, with its field, and nothing is made or changed.
#ifndef TRAINYARD_TRAINER_TRAIN_PLACES_H_
#define TRAINYARD_TRAINER_TRAIN_PLACES_H_

#include <filesystem>

#include "trainer/config/config.h"

namespace trainyard {

// The file in run.dir that says whose it is (run_directory.h).
std::filesystem::path IdentityFile(const Config& config);
// Whether an attempt has loaded what it starts from: the file is there. Throws StorageError when that could not be
// seen.
bool HasBegun(const Config& config);

// run.dir and checkpoint.dir can be written or made, and no folder stands where a file of theirs goes; data.path,
// init.from and checkpoint.resume are there; train.record can be written and is nothing but a record. Throws
// ConfigError naming field and path, and StorageError when one of them could not be looked at: a job that is restarted
// while a server is away is not a wrong one. For the node of rank 0, which reads and writes them.
void CheckPlaces(const Config& config);

}  // namespace trainyard

#endif  // TRAINYARD_TRAINER_TRAIN_PLACES_H_
