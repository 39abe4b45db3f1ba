// Splits what a rank writes into lines: into its log, onto the terminal, and the last ones kept.
#ifndef TRAINYARD_TRAINER_LAUNCH_RANK_OUTPUT_H_
#define TRAINYARD_TRAINER_LAUNCH_RANK_OUTPUT_H_

#include <cstdint>
#include <deque>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "trainer/launch/log_writer.h"

namespace trainyard {

// Not for concurrent use.
class RankOutput {
 public:
  // `echo`: where to repeat everything as it comes (a progress bar's carriage returns included), or
  // null. Must outlive this object.
  explicit RankOutput(LogWriter* echo) : echo_(echo) {}

  // Waits for nothing.
  void Append(std::string_view bytes);
  // Into the log alone: what the rank has not written itself.
  void Log(std::string_view text) { log_->Add(text); }
  bool echoes() const { return echo_ != nullptr; }
  // From now on, and for everything that came before.
  void OpenLog(const std::string& path) { log_->Open(path); }
  // LogWriter's Finish and Close.
  void FinishLog() { log_->Finish(); }
  std::string CloseLog() { return log_->Close(); }
  // The last lines, oldest first; a bar that was redrawn counts as its last state.
  std::vector<std::string> Tail() const;

 private:
  static constexpr size_t kTailLines = 20;
  void AddLine(std::string line);

  LogWriter* echo_;
  std::unique_ptr<LogWriter> log_ = std::make_unique<LogWriter>();
  std::string line_;
  std::deque<std::string> tail_;
};

}  // namespace trainyard

#endif  // TRAINYARD_TRAINER_LAUNCH_RANK_OUTPUT_H_
