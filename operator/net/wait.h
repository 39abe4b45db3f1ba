// Waiting for a socket, with a deadline and a stop.
#ifndef TRAINYARD_OPERATOR_NET_WAIT_H_
#define TRAINYARD_OPERATOR_NET_WAIT_H_

#include <string>

#include "operator/base/clock.h"
#include "operator/base/status.h"
#include "operator/base/stop_flag.h"

namespace trainyard::net {

// How long something may take, and what ends it before.
struct Wait {
  Instant deadline;
  const StopFlag& stop;

  static Wait For(double seconds, const StopFlag& stop) { return {After(SteadyNow(), seconds), stop}; }
};

// Until poll() reports one of `events` (or an error) of `descriptor`. kDeadline, kStopped.
Status WaitFor(int descriptor, short events, const Wait& wait);

// kUnavailable: "connect: Connection refused", of an errno.
Status SocketFailed(const std::string& what, int error);

}  // namespace trainyard::net

#endif  // TRAINYARD_OPERATOR_NET_WAIT_H_
