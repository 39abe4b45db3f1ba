// The table of tasks.
#ifndef TRAINYARD_TRAINER_TASK_TASKS_H_
#define TRAINYARD_TRAINER_TASK_TASKS_H_

#include <memory>
#include <span>
#include <string>

#include "trainer/task/task.h"

namespace trainyard {

struct TaskEntry {
  const char* name;
  const char* summary;
  // Null for a task that is not there yet. Throws DataError when the data cannot be read.
  std::unique_ptr<Task> (*build)(const Config& config);
};

std::span<const TaskEntry> Tasks();

// Throws ConfigError naming the tasks that can be built.
std::unique_ptr<Task> BuildTask(const Config& config);

}  // namespace trainyard

#endif  // TRAINYARD_TRAINER_TASK_TASKS_H_
