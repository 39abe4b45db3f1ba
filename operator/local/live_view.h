// What a person sees while `local` runs: a line per event, and one line of state below them.
#ifndef TRAINYARD_OPERATOR_LOCAL_LIVE_VIEW_H_
#define TRAINYARD_OPERATOR_LOCAL_LIVE_VIEW_H_

#include <string>

#include "operator/api/training_job.h"

namespace trainyard::local {

// How much of a line of output, and of a message of ours, is shown.
inline constexpr size_t kOutputWidth = 240, kMessageWidth = 1000;

// On a terminal the line of state is redrawn; elsewhere it is printed when the phase changes and
// every ten seconds. Used by one thread.
class LiveView {
 public:
  // `fd` stays the caller's. `quiet`: draws nothing.
  LiveView(int fd, bool quiet);
  ~LiveView();

  void Event(const std::string& text);
  void State(const api::TrainingJob& job, Time now);
  // Ends the line of state.
  void Finish();

  // "Running  step 120/400 [######--------------] 30%  ETA 42s  loss 1.22  workers 2/2  restarts 1"
  static std::string StateLine(const api::JobStatus& status);
  // A line of a program's output for a terminal and a summary: without control characters, and of at most `longest`
  // bytes.
  static std::string Printable(const std::string& line, size_t longest);
  // The job's end, as a block of lines.
  static std::string Summary(const api::TrainingJob& job);

 private:
  void Write(const std::string& text) const;
  int fd_;
  bool quiet_, terminal_, drawn_ = false;
  std::string last_phase_;
  Time last_time_{};
};

}  // namespace trainyard::local

#endif  // TRAINYARD_OPERATOR_LOCAL_LIVE_VIEW_H_
