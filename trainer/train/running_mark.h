// Whether an attempt of a run is alive, for whoever starts another one.
#ifndef TRAINYARD_TRAINER_TRAIN_RUNNING_MARK_H_
#define TRAINYARD_TRAINER_TRAIN_RUNNING_MARK_H_

#include <cstdint>
#include <filesystem>
#include <string>

namespace trainyard {

// The file `running` of run.dir, or of checkpoint.dir, held (flock) by the newest attempt as long as it lives. It
// decides nothing (the fence does): it lets a start say whom it ends. Where it cannot be made, or the file system has
// no locks, nothing is said.
class RunningMark {
 public:
  // "attempt 1 (process 17 on host a)", when it holds the mark; empty when nobody is known to.
  static std::string Holder(const std::filesystem::path& run_dir);

  // Takes the place of what is there. Never throws.
  RunningMark(const std::filesystem::path& run_dir, int64_t attempt);
  ~RunningMark();
  RunningMark(const RunningMark&) = delete;
  RunningMark& operator=(const RunningMark&) = delete;

 private:
  int fd_ = -1;
};

}  // namespace trainyard

#endif  // TRAINYARD_TRAINER_TRAIN_RUNNING_MARK_H_
