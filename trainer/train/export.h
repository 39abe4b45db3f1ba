// The model as one safetensors file: every parameter, trained or frozen, under all its names, and every buffer,
// float32, under their state_dict names; the averages of parameters that have any. A run's export, its best weights and
// `trainyard checkpoint export` are written here, and are the same bytes for the same model.
#ifndef TRAINYARD_TRAINER_TRAIN_EXPORT_H_
#define TRAINYARD_TRAINER_TRAIN_EXPORT_H_

#include <filesystem>
#include <string>

#include "trainer/base/file.h"
#include "trainer/base/input_file.h"
#include "trainer/parallel/engine.h"

namespace trainyard {

// For rank 0, while the others TakePartInExport. What takes the place of `path` when it is committed; makes its folder.
// The file says whose model it is (WeightsMetadata). Holds a bucket beside the engine, which shows its averages. Throws
// StorageError when the others' part is over, PeerError when a collective failed.
Replacement ExportModel(Engine& engine, const Config& config, const std::string& path, const Tick& tick);

// What the other ranks have of the model. Throws PeerError when a collective failed.
void TakePartInExport(Engine& engine);

// What killed attempts have not finished: large files that nobody would look for. For the attempt that owns the run,
// before its own first export; one that it has ended may lose what it is writing. `tick` is called
// for each file.
void RemoveUnfinishedExports(const std::filesystem::path& run_dir, const Tick& tick);

// The model of a checkpoint (FindCheckpoint says what `path` may be), by the configuration that it holds: no data is
// read and no engine is made. Frozen parameters, which are in no checkpoint, come from `init_from`, or, when that is
// empty, from where the run had them: the file of its init.from, or its seed. Throws ConfigError when `out` cannot be
// written or that file is gone or another one, StorageError for a bad checkpoint.
void ExportCheckpoint(const std::string& path, const std::string& out, const std::string& init_from);

}  // namespace trainyard

#endif  // TRAINYARD_TRAINER_TRAIN_EXPORT_H_
