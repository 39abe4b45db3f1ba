// One word for an exit code: what a launcher writes into its termination message as `reason`, and what the
// operator says of a worker that left no message. docs/architecture.md, "Exit codes".
#ifndef TRAINYARD_OPERATOR_API_EXIT_REASON_H_
#define TRAINYARD_OPERATOR_API_EXIT_REASON_H_

#include <cstdint>
#include <string>
#include <utility>

namespace trainyard {

// "Signal9" for 137, "ExitCode1" for a code that has no meaning here.
inline std::string ExitReason(int64_t code) {
  static constexpr std::pair<int64_t, const char*> kReasons[] = {
      {0, "Completed"},        {2, "Usage"},       {64, "BadConfiguration"},
      {65, "BadData"},         {69, "PeerFailed"}, {70, "InternalError"},
      {71, "OutOfMemory"},     {72, "NonFinite"},  {73, "Hang"},
      {74, "StorageFailed"},   {75, "Stopped"},    {126, "CommandNotExecutable"},
      {127, "CommandNotFound"}};
  for (const auto& [known, reason] : kReasons) {
    if (code == known) return reason;
  }
  return code > 128 ? "Signal" + std::to_string(code - 128) : "ExitCode" + std::to_string(code);
}

}  // namespace trainyard

#endif  // TRAINYARD_OPERATOR_API_EXIT_REASON_H_
