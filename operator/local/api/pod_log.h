// A container's log, for pods/log.
#ifndef TRAINYARD_OPERATOR_LOCAL_API_POD_LOG_H_
#define TRAINYARD_OPERATOR_LOCAL_API_POD_LOG_H_

#include <filesystem>
#include <memory>
#include <optional>
#include <string>

#include "operator/base/clock.h"
#include "operator/base/file.h"
#include "operator/base/status.h"
#include "operator/kube/client.h"

namespace trainyard::local {

using kube::Json;

struct LogLimits {
  uint64_t most = 256 << 20;  // bytes of disk
  uint64_t kept = 128 << 20;  // of them the last, when there are more
};
// Gives the disk back what a log's beginning takes, where it has grown beyond the limit: a program may print without
// end. Offsets in it stay as they are, and its writers notice nothing. Does nothing where the file system cannot
// (fallocate(2), FALLOC_FL_PUNCH_HOLE).
void FreeBeginning(const std::filesystem::path& log, const LogLimits& limits = {});

// Notes beside a log when it grew, for LogOptions::since: the processes write into it themselves. Frees its beginning
// then.
class LogTimes {
 public:
  explicit LogTimes(std::filesystem::path log) : log_(std::move(log)) {}
  // Called often. Notes at most once a second.
  void Note(Time now);
  // The container has ended: notes what came last.
  void NoteEnd(Time now);

 private:
  std::filesystem::path log_;
  uintmax_t size_ = 0;
  std::optional<Time> noted_;
};

// A container's log from a point on.
class LogSource {
 public:
  LogSource(std::shared_ptr<const RegularFile> file, uint64_t from) : file_(std::move(file)), at_(from) {}
  // What was written since the last call; at most 64 KiB. Where the log's beginning is gone, it goes on with the first
  // whole line that is there, or in the middle of one that is longer than that.
  std::string Read();
  // How many bytes of the log come before the next read, and how many there are.
  uint64_t at() const { return at_; }
  uint64_t size() const { return file_->size(); }
  void SkipTo(uint64_t offset) { at_ = offset; }

 private:
  std::shared_ptr<const RegularFile> file_;
  uint64_t at_;
};
struct LogOptions {
  std::optional<int64_t> tail_lines;  // of the last 64 MiB
  std::optional<Time> since;          // what was written from a second before it on, within the last days
};
// kInvalid, as the kubelet says it, when the container does not exist or has not started.
Result<LogSource> OpenLog(const std::filesystem::path& path, const Json& pod, const std::string& container,
                          const LogOptions& options);

bool ContainerRuns(const Json& pod, const std::string& container);

}  // namespace trainyard::local

#endif  // TRAINYARD_OPERATOR_LOCAL_API_POD_LOG_H_
