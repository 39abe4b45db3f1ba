// A rank's log and the launcher's terminal, and what keeps either from holding up the launcher.
#ifndef TRAINYARD_TRAINER_LAUNCH_LOG_WRITER_H_
#define TRAINYARD_TRAINER_LAUNCH_LOG_WRITER_H_

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include "trainer/base/abandonable_thread.h"

namespace trainyard {

struct LogOptions {
  size_t max_bytes = size_t{64} << 20;  // that wait to be written
  // From Finish() on, for writing what waits.
  std::chrono::milliseconds closing{3000};
};

// A bounded queue, and behind it a thread that makes and writes the file: each may block for ever (a pipe that nobody
// reads, a terminal that Ctrl-S has stopped, a volume whose server is gone), and the thread may then live until the
// process ends. What does not fit is dropped and counted, and the file says where. Not for concurrent use.
class LogWriter {
 public:
  explicit LogWriter(const LogOptions& options = {});
  ~LogWriter();
  LogWriter(const LogWriter&) = delete;
  LogWriter& operator=(const LogWriter&) = delete;

  // Never waits for the file. Before Open it is kept.
  void Add(std::string_view text);
  // The same, however much waits: for the few lines that are read at the end of it all.
  void Say(std::string_view text);
  // Makes the file, or empties it, and the folder that it lies in. Only the first call of either kind counts.
  void Open(const std::filesystem::path& path);
  // Writes to a descriptor that stays open until the process ends, and that others share: it is left as it is, blocking
  // or not.
  void Open(int fd, const std::string& name);

  // Waits until everything is written, at most so long. Says what is missing by then, as Close does.
  std::string Flush(std::chrono::milliseconds patience);
  // No text comes any more; returns at once.
  void Finish();
  // Waits for the file to be written, at most until the closing deadline. What is left then is dropped, and the thread
  // left to itself. Says how many lines the file lacks and why; empty: none, or there is no file.
  std::string Close();

 private:
  struct Shared;

  LogOptions options_;
  std::string name_;
  std::chrono::steady_clock::time_point deadline_{};
  std::shared_ptr<Shared> shared_;           // the thread's as well
  std::optional<AbandonableThread> thread_;  // none before it is open and once it is closed
};

}  // namespace trainyard

#endif  // TRAINYARD_TRAINER_LAUNCH_LOG_WRITER_H_
