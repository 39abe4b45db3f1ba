// `trainyard synth mace_survival`: a cohort of made-up chests in the data set's layout, with each subject's true risk.
#ifndef TRAINYARD_TRAINER_TASK_MACE_SURVIVAL_SYNTH_H_
#define TRAINYARD_TRAINER_TASK_MACE_SURVIVAL_SYNTH_H_

#include <memory>

#include "trainer/task/synthesis.h"

namespace trainyard::mace {

std::unique_ptr<Synthesis> MakeSynthesis();

}  // namespace trainyard::mace

#endif  // TRAINYARD_TRAINER_TASK_MACE_SURVIVAL_SYNTH_H_
