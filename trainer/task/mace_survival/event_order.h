// The order in which a survival analysis sees its subjects.
#ifndef TRAINYARD_TRAINER_TASK_MACE_SURVIVAL_EVENT_ORDER_H_
#define TRAINYARD_TRAINER_TASK_MACE_SURVIVAL_EVENT_ORDER_H_

#include <cstdint>
#include <optional>
#include <vector>

#include "trainer/data/sample_stream.h"

namespace trainyard::mace {

// Each epoch has as many positions as there are subjects. Of any n that follow each other, floor(n fraction) at least
// and ceil(n fraction) at most are of subjects with an event: so a batch has its events whatever its size and wherever
// it begins. Subjects with an event, and those without, come in permutations of their own; who is rarer than asked for
// comes more than once an epoch, everyone equally often but for one.
//
// The first `plain_epochs` hold every subject once, as without a fraction. A pure function of its arguments.
class EventOrder : public Order {
 public:
  // REQUIRES: subjects of both kinds, and 0 < fraction < 1.
  EventOrder(const std::vector<uint8_t>& events, double fraction, int64_t plain_epochs, uint64_t seed);
  int64_t items() const override { return size_; }
  int64_t ItemAt(int64_t epoch, int64_t position) const override;

 private:
  // Positions with an event before `position`.
  int64_t EventsBefore(int64_t position) const;

  int64_t size_;
  double fraction_;
  int64_t plain_epochs_;
  uint64_t seed_;
  PermutedOrder plain_;
  std::vector<int64_t> with_, without_;  // subjects
};

}  // namespace trainyard::mace

#endif  // TRAINYARD_TRAINER_TASK_MACE_SURVIVAL_EVENT_ORDER_H_
