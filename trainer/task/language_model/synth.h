// `trainyard synth language_model`: a corpus whose entropy rate is known.
#ifndef TRAINYARD_TRAINER_TASK_LANGUAGE_MODEL_SYNTH_H_
#define TRAINYARD_TRAINER_TASK_LANGUAGE_MODEL_SYNTH_H_

#include <memory>

#include "trainer/task/synthesis.h"

namespace trainyard::lm {

// Token shards and truth.json.
std::unique_ptr<Synthesis> MakeSynthesis();

}  // namespace trainyard::lm

#endif  // TRAINYARD_TRAINER_TASK_LANGUAGE_MODEL_SYNTH_H_
