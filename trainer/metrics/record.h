// Files of one JSON line per step.
#ifndef TRAINYARD_TRAINER_METRICS_RECORD_H_
#define TRAINYARD_TRAINER_METRICS_RECORD_H_

#include <cstdint>
#include <cstdio>
#include <filesystem>
#include <optional>
#include <span>
#include <string>

#include "trainer/metrics/leading_lines.h"

namespace trainyard {

struct RecordLine {
  int64_t attempt = 0, step = 0;
  std::span<const int64_t> samples;
  uint64_t input_xxh3 = 0;
  double loss = 0, grad_norm = 0, lr = 0;
};

// Throws ConfigError when there is a file that is not a record: neither empty nor beginning with one of
// its lines. A pipe or a device is not looked into. Throws StorageError when it could not be read.
void CheckRecordFile(const std::filesystem::path& path);

// {attempt, step, samples, input_xxh3, loss, grad_norm, lr}: what training did, to the bit.
class Record {
 public:
  // Keeps the lines up to `last_step` of an existing file (KeepLeadingLines), and not the rest: those steps are done
  // again. Throws ConfigError when the file cannot be written, is something else (CheckRecordFile), or
  // has lines although the run's first attempt starts from scratch: they are another run's; StorageError when it could
  // not be read. Then nothing was changed. `tick`, if any, is called while the file is read, which may be long.
  Record(const std::filesystem::path& path, int64_t last_step, int64_t attempt, const AsOwner& as_owner = {},
         const Tick& tick = {});
  ~Record();
  Record(const Record&) = delete;
  Record& operator=(const Record&) = delete;
  // Throws StorageError.
  void Write(const RecordLine& line);
  // Of the last line that was kept, 0 where none was; nothing when there was no file. Less than `last_step`: lines are
  // missing.
  std::optional<int64_t> kept_step() const { return kept_step_; }

 private:
  std::filesystem::path path_;
  std::FILE* file_;
  std::optional<int64_t> kept_step_;
};

}  // namespace trainyard

#endif  // TRAINYARD_TRAINER_METRICS_RECORD_H_
