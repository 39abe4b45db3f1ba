#include "trainer/parallel/unit_schedule.h"

#include <algorithm>
#include <utility>

namespace trainyard {

UnitSchedule::UnitSchedule(std::vector<ScheduledUse> uses, const std::vector<UnitId>& bucket_units)
    : forward_(std::move(uses)) {
  size_t buckets = 0;
  for (size_t place = forward(); place < places(); ++place) {
    // A unit that forward opens earlier as well gets more of its gradient there; one that is never opened gets none.
    const auto left_end = forward_.begin() + static_cast<std::ptrdiff_t>(places() - 1 - place);
    const auto is_over = [&](UnitId unit) {
      return std::find(forward_.begin(), left_end, ScheduledUse{.index = unit.index}) == left_end;
    };
    while (buckets < bucket_units.size() && is_over(bucket_units[buckets])) ++buckets;
    buckets_after_.push_back(buckets);
  }
}

}  // namespace trainyard
