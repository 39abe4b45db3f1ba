// A synthetic data set in a task's real format: what `trainyard synth TASK` writes.
#ifndef TRAINYARD_TRAINER_TASK_SYNTHESIS_H_
#define TRAINYARD_TRAINER_TASK_SYNTHESIS_H_

#include <filesystem>
#include <string>

#include "trainer/config/field_table.h"

namespace trainyard {

// Each task that has one derives its own.
class Synthesis {
 public:
  virtual ~Synthesis() = default;
  // What the command takes beside --out, such as "--seed", bound to this object. Options of class identity decide what
  // is written, free ones how.
  virtual void Declare(FieldTable& options) = 0;
  // What a configuration has to say beside task.name and data.path, as "task.env: x"; empty: nothing.
  virtual std::string settings() const { return ""; }
  // Writes the data and its ground truth into `out`, with a progress bar on standard error. The same
  // options give the same bytes. Throws ConfigError when `out` cannot be written.
  virtual void Write(const std::filesystem::path& out) = 0;
};

}  // namespace trainyard

#endif  // TRAINYARD_TRAINER_TASK_SYNTHESIS_H_
