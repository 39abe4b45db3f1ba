// `trainyard synth TASK`: a command for each task that has synthetic data.
#ifndef TRAINYARD_TRAINER_SYNTH_COMMAND_H_
#define TRAINYARD_TRAINER_SYNTH_COMMAND_H_

#include <map>
#include <memory>
#include <string>
#include <vector>

#include "trainer/task/tasks.h"

namespace CLI {
class App;
}

namespace trainyard {

class SynthCommand {
 public:
  // Adds the tasks below `synth`, which must not outlive this object.
  explicit SynthCommand(CLI::App& synth);
  // Writes the data set that was asked for, unless it is there already, and says how to train on it. Throws UsageError
  // for a value that is not allowed, ConfigError for a folder that holds anything else.
  // REQUIRES: one of the tasks was named.
  void Run();

 private:
  struct Entry {
    CLI::App* command;
    std::unique_ptr<Synthesis> synthesis;
    std::vector<Field> fields;
    std::map<std::string, std::string> given;  // by option
    std::string out;
  };
  std::vector<std::unique_ptr<Entry>> entries_;
};

}  // namespace trainyard

#endif  // TRAINYARD_TRAINER_SYNTH_COMMAND_H_
