// One word for an exit code. docs/architecture.md, "Exit codes".
#ifndef TRAINYARD_OPERATOR_API_EXIT_REASON_H_
#define TRAINYARD_OPERATOR_API_EXIT_REASON_H_

#include <cstdint>
#include <string>
#include <utility>

namespace trainyard {

// The signal that a shell's 128 + n stands for; 0 when the code stands for none: Linux has signals 1 to 64.
inline int64_t SignalOf(int64_t code) { return code > 128 && code <= 192 ? code - 128 : 0; }

// Of any program, by what shells and kubelets mean: "Signal9" for 137, "ExitCode2" for 2.
inline std::string ForeignExitReason(int64_t code) {
  if (code == 0) return "Completed";
  if (code == 126) return "CommandNotExecutable";
  if (code == 127) return "CommandNotFound";
  const int64_t signal = SignalOf(code);
  return signal > 0 ? "Signal" + std::to_string(signal) : "ExitCode" + std::to_string(code);
}

// Of our trainer, whose codes have meanings of their own: "BadData" for 65. What its launcher writes into its
// termination message as `reason`, unless the kernel killed a rank for want of memory.
inline std::string ExitReason(int64_t code) {
  static constexpr std::pair<int64_t, const char*> kReasons[] = {
      {2, "Usage"},        {64, "BadConfiguration"}, {65, "BadData"}, {69, "PeerFailed"},    {70, "InternalError"},
      {71, "OutOfMemory"}, {72, "NonFinite"},        {73, "Hang"},    {74, "StorageFailed"}, {75, "Stopped"}};
  for (const auto& [known, reason] : kReasons) {
    if (code == known) return reason;
  }
  return ForeignExitReason(code);
}

}  // namespace trainyard

#endif  // TRAINYARD_OPERATOR_API_EXIT_REASON_H_
