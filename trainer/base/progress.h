// One line of progress for long work: a bar that redraws itself on a terminal, a plain line now
// and then elsewhere.
#ifndef TRAINYARD_TRAINER_BASE_PROGRESS_H_
#define TRAINYARD_TRAINER_BASE_PROGRESS_H_

#include <chrono>
#include <cstdint>
#include <optional>
#include <string>

namespace trainyard {

enum class ProgressStyle { kBar, kLines, kNone };

// TRAINYARD_PROGRESS (bar, lines or none; the launcher sets it for its ranks), else a bar when
// standard error is a terminal.
ProgressStyle ProgressStyleFromEnvironment();

// Columns of the terminal that the bar is drawn on, asked anew each time: of standard error, else (it
// is a pipe to the launcher) of the controlling terminal, else COLUMNS, else 80.
int TerminalColumns();

// The bar's line, at most `columns` - 1 characters, so that no terminal wraps it: the bar itself
// shrinks first, then `detail` is cut.
std::string BarLine(const std::string& label, int64_t done, int64_t total, const std::string& detail,
                    const std::string& time, int columns);

// Not for concurrent use: one thread draws.
class Progress {
 public:
  Progress(std::string label, int64_t total, ProgressStyle style);
  ~Progress();
  // Shows `done` of the total with `detail` behind it: at most ten times a second as a bar, every
  // `kLineSeconds` as lines. The last one is always shown. `remaining`: seconds, where the caller
  // knows better than the pace since the first call, at which nothing is known.
  void Update(int64_t done, const std::string& detail, std::optional<double> remaining = {});
  // Clears the bar so that other output can be printed; the next Update draws it again.
  void Clear();

 private:
  static constexpr double kLineSeconds = 5;
  std::string Time(int64_t done, std::optional<double> remaining) const;
  std::optional<double> AtPace(int64_t done) const;

  std::string label_;
  int64_t total_;
  ProgressStyle style_;
  std::chrono::steady_clock::time_point start_, last_{};
  // The first Update.
  std::optional<int64_t> first_done_;
  std::chrono::steady_clock::time_point first_{};
  bool drawn_ = false;
};

}  // namespace trainyard

#endif  // TRAINYARD_TRAINER_BASE_PROGRESS_H_
