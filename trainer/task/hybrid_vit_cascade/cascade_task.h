// The task hybrid_vit_cascade: volumes of a CT from two X-rays, by diffusion models of growing size.
#ifndef TRAINYARD_TRAINER_TASK_HYBRID_VIT_CASCADE_CASCADE_TASK_H_
#define TRAINYARD_TRAINER_TASK_HYBRID_VIT_CASCADE_CASCADE_TASK_H_

#include <memory>
#include <vector>

#include "trainer/task/stage.h"
#include "trainer/task/task.h"

namespace trainyard::hvc {

void DeclareCascade(const Config& config, ModelDeclaration& model);
// One for each network from task.first_stage on.
std::vector<Stage> CascadeStages(const Config& config);
// Looks for the patients. Throws DataError.
std::unique_ptr<Task> BuildCascadeTask(const Config& config);

}  // namespace trainyard::hvc

#endif  // TRAINYARD_TRAINER_TASK_HYBRID_VIT_CASCADE_CASCADE_TASK_H_
