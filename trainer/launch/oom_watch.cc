#include "trainer/launch/oom_watch.h"

#include <algorithm>

namespace trainyard {
namespace {

constexpr double kBetweenLooks = 1, kDyingSeconds = 30;
constexpr uint64_t kMostKept = 1024;  // ranks of a node are fewer

}  // namespace

OomWatch::OomWatch(const Count& count) : count_(count), last_(count_()) {}

void OomWatch::Look(double now) {
  if (now < looked_ + kBetweenLooks) return;
  looked_ = now;
  Note(now);
}

void OomWatch::Note(double now) {
  const std::optional<uint64_t> count = count_();
  const uint64_t grown = count && last_ && *count > *last_ ? *count - *last_ : 0;
  killed_.insert(killed_.end(), std::min(grown, kMostKept), now);
  last_ = count;
  while (!killed_.empty() && (killed_.size() > kMostKept || killed_.front() < now - kDyingSeconds)) killed_.pop_front();
}

bool OomWatch::Explains(double now) {
  Note(now);
  if (killed_.empty()) return false;
  killed_.pop_front();
  return true;
}

}  // namespace trainyard
