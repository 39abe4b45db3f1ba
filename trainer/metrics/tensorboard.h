// Events for TensorBoard.
#ifndef TRAINYARD_TRAINER_METRICS_TENSORBOARD_H_
#define TRAINYARD_TRAINER_METRICS_TENSORBOARD_H_

#include <cstdint>
#include <filesystem>
#include <memory>

#include "trainer/metrics/sink_queue.h"

namespace trainyard {

// A new event file in `directory`. Readers drop what earlier attempts wrote behind `first_step`.
// A curve goes to a run of its own, curves/TAG-step-N, as scalars over x, so that those of several
// evaluations lie over each other. Throws StorageError.
std::unique_ptr<Sink> OpenTensorBoard(const std::filesystem::path& directory, int64_t first_step);

}  // namespace trainyard

#endif  // TRAINYARD_TRAINER_METRICS_TENSORBOARD_H_
