// The order in which a survival analysis sees its subjects.
#ifndef TRAINYARD_TRAINER_TASK_MACE_SURVIVAL_EVENT_ORDER_H_
#define TRAINYARD_TRAINER_TASK_MACE_SURVIVAL_EVENT_ORDER_H_

#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "trainer/data/window_order.h"

namespace trainyard::mace {

// Each epoch has as many positions as its window has subjects. Of any n that follow each other, floor(n fraction) at
// least and ceil(n fraction) at most are of subjects with an event: so a batch has its events whatever its size and
// wherever it begins. Subjects with an event, and those without, come in permutations of their own; who is rarer than
// asked for comes more than once an epoch, everyone equally often but for one: over all epochs where every one of them
// holds all subjects, within each epoch where its window does not. That is said of all positions: where the stream
// leaves out an epoch's last ones (EpochEnd::kDrop), who stood there comes as much less often.
//
// The first `plain_epochs` hold every subject of the window once, as without a fraction. A pure function of its
// arguments.
class EventOrder : public Order {
 public:
  // Throws ConfigError where some epoch's window has no subject with an event, or none without.
  // REQUIRES: 0 < fraction < 1; a window of these subjects (ResolveWindow).
  EventOrder(const std::vector<uint8_t>& events, double fraction, int64_t plain_epochs, const Window& window,
             uint64_t seed);
  int64_t items() const override { return plain_->items(); }
  int64_t replaced() const override { return plain_->replaced(); }
  int64_t ItemAt(int64_t epoch, int64_t position) const override;
  bool repeats(int64_t epoch) const override { return epoch >= plain_epochs_; }

 private:
  // Subjects, by whether they have an event.
  struct Kinds {
    std::vector<int64_t> with, without;
  };
  void Add(int64_t subject, Kinds& to) const {
    (events_[static_cast<size_t>(subject)] ? to.with : to.without).push_back(subject);
  }
  Kinds KindsOf(int64_t epoch) const;
  void RequireBothKinds() const;
  // Positions with an event before `position`.
  int64_t EventsBefore(int64_t position) const;

  std::vector<uint8_t> events_;
  double fraction_;
  int64_t plain_epochs_;
  uint64_t seed_;
  std::shared_ptr<const Order> plain_;
  std::optional<WindowOrder> windows_;  // where they do not hold every subject
  Kinds all_;
};

}  // namespace trainyard::mace

#endif  // TRAINYARD_TRAINER_TASK_MACE_SURVIVAL_EVENT_ORDER_H_
