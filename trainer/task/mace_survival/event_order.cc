#include "trainer/task/mace_survival/event_order.h"

#include <cmath>
#include <span>

#include "trainer/base/error.h"
#include "trainer/base/text.h"

namespace trainyard::mace {
namespace {

// The k-th draw: one permutation after the other.
int64_t Draw(std::span<const int64_t> of, int64_t k, uint64_t key) {
  const auto size = static_cast<uint64_t>(of.size()), n = static_cast<uint64_t>(k);
  const Permutation order(size, HashKey(key, n / size));
  return of[static_cast<size_t>(order(n % size))];
}

}  // namespace

EventOrder::EventOrder(const std::vector<uint8_t>& events, double fraction, int64_t plain_epochs, const Window& window,
                       uint64_t seed)
    : events_(events),
      fraction_(fraction),
      plain_epochs_(plain_epochs),
      seed_(seed),
      plain_(MakeWindowOrder(std::ssize(events), window, seed)) {
  const int64_t subjects = std::ssize(events_);
  if (window.items < subjects) windows_.emplace(subjects, window, seed);
  for (int64_t subject = 0; subject < subjects; ++subject) Add(subject, all_);
  RequireBothKinds();
}

EventOrder::Kinds EventOrder::KindsOf(int64_t epoch) const {
  Kinds kinds;
  for (int64_t i = 0; i < items(); ++i) Add(windows_->ItemOf(epoch, i), kinds);
  return kinds;
}

void EventOrder::RequireBothKinds() const {
  // Places of the list go round: as many windows as there are subjects are all of them.
  const int64_t subjects = std::ssize(events_);
  std::vector<int64_t> before = {0};  // of the list's first places, twice around, those with an event
  for (int64_t i = 0; i < 2 * subjects; ++i) {
    const int64_t subject = windows_ ? windows_->ItemOf(0, i) : i % subjects;
    before.push_back(before.back() + events_[static_cast<size_t>(subject)]);
  }
  for (int64_t epoch = 0; epoch < subjects; ++epoch) {
    const auto start = static_cast<size_t>(epoch * replaced() % subjects);
    const int64_t with = before[start + static_cast<size_t>(items())] - before[start];
    if (with > 0 && with < items()) continue;
    throw ConfigError(
        Format("task.event_fraction: %g takes subjects with an event and subjects without, and the %lld "
               "of an epoch are all of one kind; %s",
               fraction_, static_cast<long long>(items()),
               windows_ ? "take a higher data.cache.rate (or data.cache.bytes)" : "expected null"));
  }
}

int64_t EventOrder::EventsBefore(int64_t position) const {
  return static_cast<int64_t>(std::floor(static_cast<double>(position) * fraction_));
}

int64_t EventOrder::ItemAt(int64_t epoch, int64_t position) const {
  if (epoch < plain_epochs_) return plain_->ItemAt(epoch, position);
  // Counted over the epochs, so that an epoch's end cuts no stretch short.
  const int64_t start = (epoch - plain_epochs_) * items(), at = start + position, before = EventsBefore(at);
  const bool event = EventsBefore(at + 1) > before;
  const uint64_t key = HashKey(seed_, NameKey(event ? "subjects with an event" : "subjects without an event"));
  const int64_t drawn = event ? before : at - before;
  if (!windows_) return Draw(event ? all_.with : all_.without, drawn, key);
  // A window has draws of its own. Who is in it is found anew for each sample: far less work than to read one.
  const int64_t earlier = event ? EventsBefore(start) : start - EventsBefore(start);
  const Kinds kinds = KindsOf(epoch);
  return Draw(event ? kinds.with : kinds.without, drawn - earlier,
              HashKey(key, NameKey("window"), static_cast<uint64_t>(epoch)));
}

}  // namespace trainyard::mace
