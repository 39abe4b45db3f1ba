#include "trainer/task/mace_survival/event_order.h"

#include <cmath>
#include <span>

namespace trainyard::mace {
namespace {

// The k-th draw of an epoch: one permutation after the other.
int64_t Draw(std::span<const int64_t> of, int64_t k, uint64_t key) {
  const auto size = static_cast<uint64_t>(of.size()), n = static_cast<uint64_t>(k);
  const Permutation order(size, HashKey(key, n / size));
  return of[static_cast<size_t>(order(n % size))];
}

}  // namespace

EventOrder::EventOrder(const std::vector<uint8_t>& events, double fraction, int64_t plain_epochs, uint64_t seed)
    : size_(std::ssize(events)), fraction_(fraction), plain_epochs_(plain_epochs), seed_(seed), plain_(size_, seed) {
  for (int64_t i = 0; i < size_; ++i) (events[static_cast<size_t>(i)] ? with_ : without_).push_back(i);
}

int64_t EventOrder::EventsBefore(int64_t position) const {
  return static_cast<int64_t>(std::floor(static_cast<double>(position) * fraction_));
}

int64_t EventOrder::ItemAt(int64_t epoch, int64_t position) const {
  if (epoch < plain_epochs_) return plain_.ItemAt(epoch, position);
  // Counted over the epochs, so that an epoch's end cuts no stretch short.
  const int64_t at = (epoch - plain_epochs_) * size_ + position, before = EventsBefore(at);
  const bool event = EventsBefore(at + 1) > before;
  return event ? Draw(with_, before, HashKey(seed_, NameKey("subjects with an event")))
               : Draw(without_, at - before, HashKey(seed_, NameKey("subjects without an event")));
}

}  // namespace trainyard::mace
