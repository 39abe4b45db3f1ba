// Rank 0's output, line by line as it comes, for `local`.
#ifndef TRAINYARD_OPERATOR_LOCAL_RANK_OUTPUT_H_
#define TRAINYARD_OPERATOR_LOCAL_RANK_OUTPUT_H_

#include <filesystem>
#include <functional>
#include <optional>
#include <string>

#include "operator/local/pod_log.h"

namespace trainyard::local {

class RankOutput {
 public:
  // `line` is called for every whole line, without its end; of one that is redrawn (\r) with the last state.
  explicit RankOutput(std::function<void(const std::string&)> line) : line_(std::move(line)) {}

  // Goes on with the log at `path`: another file than before is begun from its start. Reads 64 KiB at most, so
  // that a program that writes without end does not hold its caller up.
  void Follow(const std::filesystem::path& path);
  // What is left of the log, at most a megabyte of it, and a line that has no end.
  void Finish();

 private:
  // False when there was nothing.
  bool Read();
  void Say();
  std::function<void(const std::string&)> line_;
  std::filesystem::path path_;
  std::optional<LogSource> log_;
  std::string part_;  // of a line
};

}  // namespace trainyard::local

#endif  // TRAINYARD_OPERATOR_LOCAL_RANK_OUTPUT_H_
