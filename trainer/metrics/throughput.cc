#include "trainer/metrics/throughput.h"

namespace trainyard {

void Throughput::AddStep(int64_t done, double seconds) {
  if (!warm_ && marks_.size() == 2) {
    marks_.pop_front();
    warm_ = true;
  }
  marks_.push_back({seconds, done});
  while (marks_.size() > kMostMarks || (marks_.size() > 2 && marks_[1].seconds <= seconds - kWindowSeconds))
    marks_.pop_front();
}

std::optional<double> Throughput::steps_per_second() const {
  const Mark &first = marks_.front(), &last = marks_.back();
  if (!(last.seconds > first.seconds)) return std::nullopt;
  return static_cast<double>(last.done - first.done) / (last.seconds - first.seconds);
}

}  // namespace trainyard
