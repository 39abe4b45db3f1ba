// The table of tasks.
#ifndef TRAINYARD_TRAINER_TASK_TASKS_H_
#define TRAINYARD_TRAINER_TASK_TASKS_H_

#include <memory>
#include <span>
#include <vector>

#include "trainer/task/stage.h"
#include "trainer/task/synthesis.h"
#include "trainer/task/task.h"

namespace trainyard {

struct TaskEntry : TaskDeclaration {
  std::unique_ptr<Synthesis> (*synthesis)();  // null for a task without synthetic data
  // Declares the model of a configuration; reads no data. The three are null for a task that is not there yet.
  void (*declare)(const Config& config, ModelDeclaration& model);
  // Throws DataError when the data cannot be read.
  std::unique_ptr<Task> (*build)(const Config& config);
  // In the order in which they are trained; reads no data. Null for a task of one stage.
  std::vector<Stage> (*stages)(const Config& config) = nullptr;
};

// Every task of this program. (The tests' trainer defines a table of its own, with one task more.)
std::span<const TaskEntry> Tasks();
// Those that people get.
std::span<const TaskEntry> ShippedTasks();
// What LoadConfig needs of them.
std::vector<TaskDeclaration> TaskDeclarations();

// REQUIRES of all three: `config` was loaded with the declarations above.
void DeclareModel(const Config& config, ModelDeclaration& model);
std::vector<Stage> StagesOf(const Config& config);
// Throws what the task's build throws.
std::unique_ptr<Task> BuildTask(const Config& config);

}  // namespace trainyard

#endif  // TRAINYARD_TRAINER_TASK_TASKS_H_
