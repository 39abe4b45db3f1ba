#include "trainer/base/error.h"

namespace trainyard {

const char* ReasonOf(int exit_code) {
  switch (static_cast<ExitCode>(exit_code)) {
    case ExitCode::kDone:
      return "Completed";
    case ExitCode::kUsage:
      return "Usage";
    case ExitCode::kConfig:
      return "BadConfiguration";
    case ExitCode::kData:
      return "BadData";
    case ExitCode::kPeer:
      return "PeerFailed";
    case ExitCode::kInternal:
      return "InternalError";
    case ExitCode::kOutOfMemory:
      return "OutOfMemory";
    case ExitCode::kNonFinite:
      return "NonFinite";
    case ExitCode::kHang:
      return "Hang";
    case ExitCode::kStorage:
      return "StorageFailed";
    case ExitCode::kStopped:
      return "Stopped";
  }
  return exit_code > 128 ? "Signal" : "Error";
}

}  // namespace trainyard
