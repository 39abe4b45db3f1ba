// The task mace_survival: risk of cardiac events from a CT volume (docs/mace-survival.md).
#ifndef TRAINYARD_TRAINER_TASK_MACE_SURVIVAL_MACE_TASK_H_
#define TRAINYARD_TRAINER_TASK_MACE_SURVIVAL_MACE_TASK_H_

#include <memory>
#include <vector>

#include "trainer/task/stage.h"
#include "trainer/task/task.h"

namespace trainyard::mace {

void DeclareRiskModel(const Config& config, ModelDeclaration& model);
// Pre-training (all but the risk's head), the risk's head alone, fine-tuning (all but the features' head); those that
// the configuration asks for. The last has what is left of the run.
std::vector<Stage> StagesOf(const Config& config);
// Reads the table; throws DataError.
std::unique_ptr<Task> BuildMaceTask(const Config& config);

}  // namespace trainyard::mace

#endif  // TRAINYARD_TRAINER_TASK_MACE_SURVIVAL_MACE_TASK_H_
