// Rank 0's output, line by line as it comes, for `local`.
#ifndef TRAINYARD_OPERATOR_LOCAL_RANK_OUTPUT_H_
#define TRAINYARD_OPERATOR_LOCAL_RANK_OUTPUT_H_

#include <filesystem>
#include <functional>
#include <optional>
#include <string>

#include "operator/local/api/pod_log.h"

namespace trainyard::local {

class RankOutput {
 public:
  // `line` is called for every whole line, without its end; of one that is redrawn (\r) with the last state.
  explicit RankOutput(std::function<void(const std::string&)> line) : line_(std::move(line)) {}

  // Goes on with the log at `path`: another file than before is begun from its start, when that one is finished. Reads
  // 64 KiB at most, so that a program that writes without end does not hold its caller up; where more than a megabyte
  // waits, all but its last 64 KiB is left out, and a line says so.
  void Follow(const std::filesystem::path& path);
  // What is left of the log, in the same measure, and a line that has no end. The next Follow begins a log.
  void Finish();

 private:
  // False when there was nothing.
  bool Read();
  void SkipAhead();
  void Say();
  std::function<void(const std::string&)> line_;
  std::filesystem::path path_;
  std::optional<LogSource> log_;
  bool cut_ = false;  // in the line that was left out in part
  std::string part_;  // of a line
};

}  // namespace trainyard::local

#endif  // TRAINYARD_OPERATOR_LOCAL_RANK_OUTPUT_H_
