// Which rank's end explains an attempt: docs/architecture.md, "Exit codes".
#ifndef TRAINYARD_TRAINER_LAUNCH_VERDICT_H_
#define TRAINYARD_TRAINER_LAUNCH_VERDICT_H_

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "trainer/metrics/status.h"

namespace trainyard {

// How one rank ended.
struct RankEnd {
  int rank = 0;
  int exit_code = 0;  // 128 + signal when killed by one
  int signal = 0;     // 0: exited by itself
  bool signalled_by_us = false;
  bool out_of_memory = false;   // the kernel has killed it, for want of that
  double time = 0;              // when it failed, or else was found to have ended: seconds, any common clock
  std::optional<int64_t> step;  // unknown until the rank had chosen where to start
  int64_t checkpoint_step = 0;
  std::string message;
  std::vector<std::string> tail;  // last lines of its output
};

// One word for it, as a kubelet's or by its exit code.
std::string ReasonOf(const RankEnd& end);

// Lower explains more: permanent codes > 73 > 71 and the kernel for want of memory > 70, 74 and unlisted ones > a
// signal that we did not send > 75 > 69 > a signal that we sent > 0.
int CausePriority(const RankEnd& end);

// Index of the cause: by priority, then the earliest. REQUIRES: ends is not empty.
size_t Culprit(const std::vector<RankEnd>& ends);

// The termination message of a pod: JSON of at most 4096 bytes; the tail is cut first, then the
// message (docs/formats.md). `startup` is that of the pod's first rank, whoever the culprit is.
std::string TerminationMessage(const RankEnd& culprit, int64_t attempt, const StartupTimes& startup);

}  // namespace trainyard

#endif  // TRAINYARD_TRAINER_LAUNCH_VERDICT_H_
