#include "operator/base/stop_flag.h"

#include <poll.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <algorithm>
#include <cstdint>

#include "operator/base/clock.h"

namespace trainyard {

StopFlag::StopFlag() : descriptor_(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)) {}

StopFlag::~StopFlag() {
  if (descriptor_ >= 0) close(descriptor_);
}

void StopFlag::Set() {
  set_ = true;
  const uint64_t one = 1;
  [[maybe_unused]] const ssize_t written = write(descriptor_, &one, sizeof one);  // set_ says it anyway
}

bool StopFlag::Sleep(double seconds) const {
  const Instant end = After(SteadyNow(), seconds);
  while (!set()) {
    const double left = SecondsBetween(SteadyNow(), end);
    if (left <= 0) return true;
    pollfd wait{descriptor_, POLLIN, 0};
    poll(&wait, 1, static_cast<int>(std::min(left, descriptor_ < 0 ? 0.5 : 3600.0) * 1000) + 1);
  }
  return false;
}

}  // namespace trainyard
