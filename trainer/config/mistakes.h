// What is wrong with a configuration, all of it at once: whoever mends one mistake shall not have to start again to
// hear of the next.
#ifndef TRAINYARD_TRAINER_CONFIG_MISTAKES_H_
#define TRAINYARD_TRAINER_CONFIG_MISTAKES_H_

#include <functional>
#include <string>
#include <vector>

namespace trainyard {

class Mistakes {
 public:
  // Runs `look`, and notes the ConfigError that it throws; the same words count once. Of what has more than ten nothing
  // is looked at any more: a stranger's file may have a thousand, and each takes its time.
  void Note(const std::function<void()>& look);
  // Throws a ConfigError where anything was noted: a mistake on each line, the first ten of them.
  void Throw() const;

 private:
  std::vector<std::string> found_;
};

}  // namespace trainyard

#endif  // TRAINYARD_TRAINER_CONFIG_MISTAKES_H_
