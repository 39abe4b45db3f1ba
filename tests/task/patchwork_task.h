// A task for tests alone, made of what the others lack: a batch norm, tied weights, a frozen part in bfloat16, a
// parameter that gets no gradient on some ranks, odd sizes, two stages with a hand-over, and a loss over the global
// batch.
#ifndef TRAINYARD_TESTS_TASK_PATCHWORK_TASK_H_
#define TRAINYARD_TESTS_TASK_PATCHWORK_TASK_H_

#include <memory>
#include <vector>

#include "trainer/task/stage.h"
#include "trainer/task/task.h"

namespace trainyard::patchwork {

// task.first: steps of the first stage. task.samples: of the data set, which is computed.
std::shared_ptr<TaskOptions> MakeOptions();
void DeclareNet(const Config& config, ModelDeclaration& model);
std::vector<Stage> StagesOf(const Config& config);
std::unique_ptr<Task> BuildPatchworkTask(const Config& config);

}  // namespace trainyard::patchwork

#endif  // TRAINYARD_TESTS_TASK_PATCHWORK_TASK_H_
