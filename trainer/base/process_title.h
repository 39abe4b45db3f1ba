// What `ps` shows of this process.
#ifndef TRAINYARD_TRAINER_BASE_PROCESS_TITLE_H_
#define TRAINYARD_TRAINER_BASE_PROCESS_TITLE_H_

#include <string>

namespace trainyard {

// The memory that the command line came in, which is what /proc/PID/cmdline shows, and that of the environment behind
// it, into which a longer title may grow: proc(5).
class ProcessTitle {
 public:
  // main's arguments, which must not be read after Set.
  ProcessTitle(int argc, char** argv);
  // Takes the place of the command line. The environment moves; what getenv has returned before is not valid any more.
  // Cut where both together are shorter.
  void Set(const std::string& title) const;

 private:
  char *begin_ = nullptr, *arguments_end_ = nullptr, *end_ = nullptr;
};

}  // namespace trainyard

#endif  // TRAINYARD_TRAINER_BASE_PROCESS_TITLE_H_
