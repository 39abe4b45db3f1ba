#include "trainer/launch/oom_watch.h"

#include <utility>

namespace trainyard {

void OomWatch::Look(double now) {
  if (now < looked_ + 1) return;
  looked_ = now;
  before_ = std::exchange(last_, count_());
}

bool OomWatch::HasKilled() const {
  const std::optional<uint64_t> now = count_();
  return now && before_ && *now > *before_;
}

}  // namespace trainyard
