// The part of a configuration that belongs to one task: declared in the task's folder, so that
// nothing here knows a task.
#ifndef TRAINYARD_TRAINER_CONFIG_TASK_OPTIONS_H_
#define TRAINYARD_TRAINER_CONFIG_TASK_OPTIONS_H_

#include <memory>
#include <string>
#include <vector>

#include "trainer/config/field_table.h"
#include "trainer/config/metric.h"

namespace trainyard {

struct Config;

// Each task derives its own and reaches it through Config::options.
class TaskOptions {
 public:
  virtual ~TaskOptions() = default;
  // The task's fields below `task.`, `model.` and `data.`, bound to this object.
  virtual void Declare(FieldTable& table) = 0;
  // Relations between fields, the common ones included. Throws ConfigError.
  virtual void Check(const Config& config) const = 0;
  // What the banner says of the task after its name, such as "standard, loss at last_position".
  virtual std::string Describe() const = 0;
  // What every evaluation gives, the periodic ones and the final one, measured in the same way: only
  // these can be watched. What one of them alone measures has a name of its own and is not listed.
  virtual std::vector<Metric> Metrics() const = 0;
  // The fields that say on what, or how, those are measured: under another value they are not compared with what was
  // best before.
  virtual std::vector<std::string> MeasuredWith() const { return {}; }
  // The operation of LibTorch's that the task needs and whose gradient has no deterministic form on a GPU; null: none.
  virtual const char* NotDeterministicOnGpu() const { return nullptr; }
};

// What loading a configuration needs to know of a task.
struct TaskDeclaration {
  const char* name;
  const char* summary;                        // one line, for people
  std::shared_ptr<TaskOptions> (*options)();  // with defaults; null for a task that is not there yet
};

}  // namespace trainyard

#endif  // TRAINYARD_TRAINER_CONFIG_TASK_OPTIONS_H_
