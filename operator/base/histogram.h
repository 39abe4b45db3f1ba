// How many values fell under which bound: what a Prometheus histogram says.
#ifndef TRAINYARD_OPERATOR_BASE_HISTOGRAM_H_
#define TRAINYARD_OPERATOR_BASE_HISTOGRAM_H_

#include <algorithm>
#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

namespace trainyard {

// What a histogram held at one moment.
struct HistogramReading {
  std::span<const double> bounds;  // ascending, without the infinite one
  std::vector<int64_t> counts;     // of values <= each bound; the last one: all
  double sum = 0;
  int64_t count() const { return counts.back(); }
};

// `Bounds`: an ascending array of doubles with static storage. Thread-safe; Observe neither locks nor allocates. A
// reading that is taken beside an Observe may lack it in the sum and have it in the counts.
template <const auto& Bounds>
class Histogram {
 public:
  void Observe(double value) {
    const auto bound = std::lower_bound(Bounds.begin(), Bounds.end(), value);
    counts_[static_cast<size_t>(bound - Bounds.begin())].fetch_add(1, std::memory_order_relaxed);
    sum_.fetch_add(value, std::memory_order_relaxed);
  }
  HistogramReading Read() const {
    HistogramReading reading{.bounds = Bounds, .counts = {}, .sum = sum_.load(std::memory_order_relaxed)};
    int64_t below = 0;
    for (const std::atomic<int64_t>& count : counts_)
      reading.counts.push_back(below += count.load(std::memory_order_relaxed));
    return reading;
  }

 private:
  std::array<std::atomic<int64_t>, Bounds.size() + 1> counts_{};
  std::atomic<double> sum_{0};
};

}  // namespace trainyard

#endif  // TRAINYARD_OPERATOR_BASE_HISTOGRAM_H_
