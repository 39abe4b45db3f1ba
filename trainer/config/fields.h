// The fields of a configuration: the common ones, which are described in fields.cc, and the task's.
#ifndef TRAINYARD_TRAINER_CONFIG_FIELDS_H_
#define TRAINYARD_TRAINER_CONFIG_FIELDS_H_

#include <string>
#include <vector>

#include "trainer/config/config.h"
#include "trainer/config/field_table.h"

namespace trainyard {

// In the file's order; those of the task only when `config.task.options` is there. The result refers
// to `config`, which must outlive it.
std::vector<Field> Fields(Config& config);

// The fields of one task's options, which must outlive the result.
std::vector<Field> TaskFields(TaskOptions& options);

}  // namespace trainyard

#endif  // TRAINYARD_TRAINER_CONFIG_FIELDS_H_
