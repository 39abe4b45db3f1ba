// Learning histories: what a source algorithm did on each task, from its first to its last step.
// The file formats are in docs/formats.md.
#ifndef TRAINYARD_TRAINER_TASK_ALGORITHM_DISTILLATION_HISTORIES_H_
#define TRAINYARD_TRAINER_TASK_ALGORITHM_DISTILLATION_HISTORIES_H_

#include <cstdint>
#include <filesystem>
#include <span>
#include <string>
#include <vector>

#include "trainer/task/algorithm_distillation/dark_room.h"
#include "trainer/task/algorithm_distillation/options.h"

namespace trainyard::ad {

// One step. `next_*` is the state after the action, also at the end of an episode: an evaluation never shows the reset.
struct Transition {
  uint8_t row, column, action, reward, next_row, next_column, done, marker;
};
static_assert(sizeof(Transition) == 8);

// The histories of every task of one environment. Immutable after loading: safe for any number of
// reading threads.
class Histories {
 public:
  Histories(int64_t tasks, int64_t streams, int64_t length)
      : tasks_(tasks), streams_(streams), length_(length), data_(static_cast<size_t>(tasks * streams * length)) {}

  int64_t tasks() const { return tasks_; }
  int64_t streams() const { return streams_; }  // independent histories per task
  int64_t length() const { return length_; }    // transitions per history

  std::span<Transition> at(int64_t task, int64_t stream) {
    return {data_.data() + (task * streams_ + stream) * length_, static_cast<size_t>(length_)};
  }
  std::span<const Transition> at(int64_t task, int64_t stream) const {
    return {data_.data() + (task * streams_ + stream) * length_, static_cast<size_t>(length_)};
  }
  // xxh3 of everything, as hexadecimal digits.
  std::string Fingerprint() const;

 private:
  int64_t tasks_, streams_, length_;
  std::vector<Transition> data_;
};

// Writes one HDF5 file with the groups "0", "1", ..., or a folder env-000, ... of NPY files.
// The file appears under its name only when it is complete. Throws StorageError.
void WriteHdf5(const Histories& histories, const std::filesystem::path& file);
void WriteNpyFolders(const Histories& histories, const std::filesystem::path& directory);

// `path`: an .hdf5 file, a folder that holds exactly one, or a folder of NPY folders. `rooms`: the environment's tasks,
// in the files' order. Histories are cut to options.max_transitions. Throws DataError naming file, array and problem:
// anything missing, truncated, of unequal shapes, or outside the environment's states and actions; more tasks than
// rooms; a step that leads elsewhere than its room does, or has another reward; in compressed mode, markers of other
// regions than the model is trained on. The original guide's files hold the reset state behind an episode's last step:
// it is replaced, and a note says so.
Histories ReadHistories(const std::filesystem::path& path, std::span<const DarkRoom> rooms, const Options& options);

}  // namespace trainyard::ad

#endif  // TRAINYARD_TRAINER_TASK_ALGORITHM_DISTILLATION_HISTORIES_H_
