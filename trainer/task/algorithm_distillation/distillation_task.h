// The task algorithm_distillation.
#ifndef TRAINYARD_TRAINER_TASK_ALGORITHM_DISTILLATION_DISTILLATION_TASK_H_
#define TRAINYARD_TRAINER_TASK_ALGORITHM_DISTILLATION_DISTILLATION_TASK_H_

#include <memory>

#include "trainer/task/task.h"

namespace trainyard::ad {

void DeclareTransformer(const Config& config, ModelDeclaration& model);
// Reads the histories. Throws DataError.
std::unique_ptr<Task> BuildDistillationTask(const Config& config);

}  // namespace trainyard::ad

#endif  // TRAINYARD_TRAINER_TASK_ALGORITHM_DISTILLATION_DISTILLATION_TASK_H_
