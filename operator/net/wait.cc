#include "operator/net/wait.h"

#include <poll.h>

#include <algorithm>
#include <cstring>

namespace trainyard::net {

Status WaitFor(int descriptor, short events, const Wait& wait) {
  for (;;) {
    if (wait.stop) return Status(Code::kStopped, "the operator stops");
    const double left = SecondsBetween(SteadyNow(), wait.deadline);
    if (left <= 0) return Status(Code::kDeadline, "no answer before the deadline");
    pollfd waits[] = {{descriptor, events, 0}, {wait.stop.descriptor(), POLLIN, 0}};
    poll(waits, 2, static_cast<int>(std::min(left, wait.stop.descriptor() < 0 ? 0.5 : 3600.0) * 1000) + 1);
    if (waits[0].revents != 0) return Status::Ok();
  }
}

Status SocketFailed(const std::string& what, int error) {
  return Status(Code::kUnavailable, what + ": " + std::strerror(error));
}

}  // namespace trainyard::net
