// What a rank tells its launcher: JSON lines over a pipe. The launcher serves the status of all its
// ranks and explains how they ended.
#ifndef TRAINYARD_TRAINER_LAUNCH_REPORT_CHANNEL_H_
#define TRAINYARD_TRAINER_LAUNCH_REPORT_CHANNEL_H_

#include <string>

#include "trainer/metrics/status.h"

namespace trainyard {

// The variable that names the pipe's descriptor; private to launcher and rank.
inline constexpr char kReportFdVariable[] = "TRAINYARD_REPORT_FD";

class ReportChannel {
 public:
  // From the environment; without a launcher everything below does nothing.
  static ReportChannel FromEnvironment();
  bool connected() const { return fd_ >= 0; }

  // Never blocks: a status that does not fit the pipe is left out, the next one is newer anyway.
  void SendStatus(const RankStatus& status);
  // Tells once which attempt this is and where the logs go.
  void SendHello(int64_t attempt, const std::string& run_dir);
  // Why the process is about to end, with which code, and that it is so since now; once. True: the launcher has it,
  // says it on the terminal and writes it into the rank's log, so that nobody else needs to. False: there is no
  // launcher, or its pipe is full.
  bool SendEnd(int code, const std::string& message);

 private:
  explicit ReportChannel(int fd) : fd_(fd) {}
  bool Send(const std::string& line);
  int fd_ = -1;
};

}  // namespace trainyard

#endif  // TRAINYARD_TRAINER_LAUNCH_REPORT_CHANNEL_H_
