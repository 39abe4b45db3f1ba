// One line of progress for long work: a bar that redraws itself on a terminal, a plain line now
// and then elsewhere.
#ifndef TRAINYARD_TRAINER_BASE_PROGRESS_H_
#define TRAINYARD_TRAINER_BASE_PROGRESS_H_

#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <mutex>
#include <optional>
#include <string>
#include <thread>

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

// Used by one thread. Between Await and the next Update one of its own draws.
class Progress {
 public:
  // What stays when the work is done: the last state on a line of its own, or nothing, since the caller says what came
  // of it. Then lines come late and ever more rarely: after 5, 10, 20, 40 s of work, so that short work has none.
  enum class End { kLine, kNothing };

  Progress(std::string label, int64_t total, ProgressStyle style, End end = End::kLine);
  ~Progress();
  Progress(const Progress&) = delete;
  Progress& operator=(const Progress&) = delete;

  // Nothing can be counted until the next Update, which is what `done` of the total were done before. Where that takes
  // long it is said that it is still running: "<what> running for 12s", on the bar's line from the fifth second on, as
  // lines after 5, 10, 20, 40 s.
  void Await(int64_t done, const std::string& what);
  // Shows `done` of the total with `detail` behind it: at most ten times a second as a bar, every
  // `kLineSeconds` as lines. The last one is always shown. `remaining`: seconds, where the caller
  // knows better than the pace since the first call (or Await), at which nothing is known.
  void Update(int64_t done, const std::string& detail, std::optional<double> remaining = {});
  // Clears the bar so that other output can be printed; the next Update draws it again.
  void Clear();
  // Prints a line in place of the bar. While something is awaited other output has to come through here.
  void Print(const std::string& line);

 private:
  static constexpr double kLineSeconds = 5;
  using Clock = std::chrono::steady_clock;
  std::string Time(int64_t done, std::optional<double> remaining) const;
  std::optional<double> AtPace(int64_t done) const;
  bool Due(int64_t done);
  void Draw(const std::string& line);
  void Erase();
  void SayRunning(const std::string& what);
  void StopAwaiting();

  std::string label_;
  int64_t total_;
  ProgressStyle style_;
  End end_;
  const Clock::time_point start_ = Clock::now();
  Clock::time_point last_{};
  double next_line_ = kLineSeconds;  // of lines that come ever more rarely: seconds after the start
  // The first Update, or Await.
  std::optional<int64_t> first_done_;
  Clock::time_point first_{};

  std::mutex mutex_;  // what is on the screen
  bool drawn_ = false;
  bool awaiting_ = false;
  std::condition_variable changed_;
  std::thread awaits_;
};

}  // namespace trainyard

#endif  // TRAINYARD_TRAINER_BASE_PROGRESS_H_
