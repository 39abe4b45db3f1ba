// Which units the ranks put together in a micro-batch, and in which order (ZeRO 3).
#ifndef TRAINYARD_TRAINER_PARALLEL_UNIT_SCHEDULE_H_
#define TRAINYARD_TRAINER_PARALLEL_UNIT_SCHEDULE_H_

#include <cstddef>
#include <cstdint>
#include <vector>

#include "trainer/model/parameter.h"

namespace trainyard {

// What forward comes to: a unit, or a Pass::Gather.
struct ScheduledUse {
  bool is_gather = false;
  int32_t index = 0;  // a UnitId's or a GatherId's
  UnitId unit() const { return {index}; }
  bool operator==(const ScheduledUse&) const = default;
};

// A micro-batch's uses come in forward's order, then, in backward, in the reverse one. A *place* counts them from 0:
// forward's are [0, forward()), backward's [forward(), places()). Plain data.
class UnitSchedule {
 public:
  // `bucket_units`: the unit of each bucket of gradients, in the order in which they are sent.
  UnitSchedule(std::vector<ScheduledUse> forward, const std::vector<UnitId>& bucket_units);

  size_t forward() const { return forward_.size(); }
  size_t places() const { return 2 * forward_.size(); }
  ScheduledUse at(size_t place) const { return forward_[place < forward() ? place : places() - 1 - place]; }
  // Where backward comes to what forward has used at a place.
  size_t BackwardOf(size_t place) const { return places() - 1 - place; }
  // The buckets whose gradients are whole when a place is over: so many of the first ones. None before backward, and
  // after its last place all.
  size_t BucketsAfter(size_t place) const { return place < forward() ? 0 : buckets_after_[place - forward()]; }

 private:
  std::vector<ScheduledUse> forward_;
  std::vector<size_t> buckets_after_;
};

}  // namespace trainyard

#endif  // TRAINYARD_TRAINER_PARALLEL_UNIT_SCHEDULE_H_
