// Faults for tests: a task that fails in one rank at one place, as its data, model or evaluation
// might. Nothing else in the trainer knows about it.
#ifndef TRAINYARD_TRAINER_TASK_FAULTY_TASK_H_
#define TRAINYARD_TRAINER_TASK_FAULTY_TASK_H_

#include <memory>

#include "trainer/task/task.h"

namespace trainyard {

// TRAINYARD_TEST_FAULT=<place>:<rank>:<n>: in that rank the n-th (from 0) call of the place fails.
// Places: loader (reading a sample throws DataError), disk (every reading from the n-th on), forward, backward,
// evaluation (throw), nonfinite (the loss is no number), slow_forward, slow_evaluation (take seconds). Returns `task`
// itself when the variable is unset or names another rank. Throws ConfigError for anything else.
std::unique_ptr<Task> WithTestFault(std::unique_ptr<Task> task, int rank);

}  // namespace trainyard

#endif  // TRAINYARD_TRAINER_TASK_FAULTY_TASK_H_
