// `trainyard synth algorithm_distillation`: a data set in the original's format, with its truth.
#ifndef TRAINYARD_TRAINER_TASK_ALGORITHM_DISTILLATION_SYNTH_H_
#define TRAINYARD_TRAINER_TASK_ALGORITHM_DISTILLATION_SYNTH_H_

#include <memory>

#include "trainer/task/synthesis.h"

namespace trainyard::ad {

// Histories, as an HDF5 file or as NPY folders, and truth.json.
std::unique_ptr<Synthesis> MakeSynthesis();

}  // namespace trainyard::ad

#endif  // TRAINYARD_TRAINER_TASK_ALGORITHM_DISTILLATION_SYNTH_H_
