// The last collectives of this rank: what a hang verdict and the overlap figures are made of.
#ifndef TRAINYARD_TRAINER_COMM_FLIGHT_RECORDER_H_
#define TRAINYARD_TRAINER_COMM_FLIGHT_RECORDER_H_

#include <chrono>
#include <cstdint>
#include <mutex>
#include <string>
#include <vector>

namespace trainyard {

struct FlightEntry {
  using Time = std::chrono::steady_clock::time_point;
  uint64_t sequence = 0;
  std::string name;  // "all_reduce"
  std::string unit;  // what it carries: "bucket 3", "consensus"
  int64_t bytes = 0;
  Time submitted, started, finished;  // zero: not yet
};

// A ring of the newest entries. Safe for any number of threads.
class FlightRecorder {
 public:
  explicit FlightRecorder(size_t capacity = 256) : ring_(capacity) {}

  uint64_t Submit(std::string name, std::string unit, int64_t bytes) {
    const std::lock_guard lock(mutex_);
    ring_[next_ % ring_.size()] = {next_, std::move(name), std::move(unit), bytes, std::chrono::steady_clock::now(), {},
                                   {}};
    return next_++;
  }
  void Start(uint64_t sequence) {
    const std::lock_guard lock(mutex_);
    if (FlightEntry* entry = Find(sequence)) entry->started = std::chrono::steady_clock::now();
  }
  void Finish(uint64_t sequence) {
    const std::lock_guard lock(mutex_);
    if (FlightEntry* entry = Find(sequence)) entry->finished = std::chrono::steady_clock::now();
  }
  // Oldest first.
  std::vector<FlightEntry> Entries() const {
    const std::lock_guard lock(mutex_);
    std::vector<FlightEntry> entries;
    const uint64_t first = next_ > ring_.size() ? next_ - ring_.size() : 0;
    for (uint64_t i = first; i < next_; ++i) entries.push_back(ring_[i % ring_.size()]);
    return entries;
  }

 private:
  FlightEntry* Find(uint64_t sequence) {
    FlightEntry& entry = ring_[sequence % ring_.size()];
    return entry.sequence == sequence ? &entry : nullptr;
  }

  mutable std::mutex mutex_;
  std::vector<FlightEntry> ring_;
  uint64_t next_ = 0;
};

}  // namespace trainyard

#endif  // TRAINYARD_TRAINER_COMM_FLIGHT_RECORDER_H_
