// The table of the tests' trainer: the tasks, and one that is for tests alone.
#include "tests/task/patchwork_task.h"
#include "trainer/task/tasks.h"

namespace trainyard {

std::span<const TaskEntry> Tasks() {
  static const std::vector<TaskEntry> all = [] {
    std::vector<TaskEntry> entries(ShippedTasks().begin(), ShippedTasks().end());
    entries.push_back({{"patchwork", "what the other tasks lack, for tests", patchwork::MakeOptions},
                       nullptr,
                       patchwork::DeclareNet,
                       patchwork::BuildPatchworkTask,
                       patchwork::StagesOf});
    return entries;
  }();
  return all;
}

}  // namespace trainyard
