// The task language_model.
#ifndef TRAINYARD_TRAINER_TASK_LANGUAGE_MODEL_LANGUAGE_TASK_H_
#define TRAINYARD_TRAINER_TASK_LANGUAGE_MODEL_LANGUAGE_TASK_H_

#include <memory>

#include "trainer/task/task.h"

namespace trainyard::lm {

void DeclareGpt2(const Config& config, ModelDeclaration& model);

// Reads the corpus once. Throws DataError.
std::unique_ptr<Task> BuildLanguageTask(const Config& config);

}  // namespace trainyard::lm

#endif  // TRAINYARD_TRAINER_TASK_LANGUAGE_MODEL_LANGUAGE_TASK_H_
