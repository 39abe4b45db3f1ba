// Synthetic patients: `trainyard synth hybrid_vit_cascade`.
#ifndef TRAINYARD_TRAINER_TASK_HYBRID_VIT_CASCADE_SYNTH_H_
#define TRAINYARD_TRAINER_TASK_HYBRID_VIT_CASCADE_SYNTH_H_

#include <memory>

#include "trainer/task/synthesis.h"

namespace trainyard::hvc {

std::unique_ptr<Synthesis> MakeSynthesis();

}  // namespace trainyard::hvc

#endif  // TRAINYARD_TRAINER_TASK_HYBRID_VIT_CASCADE_SYNTH_H_
