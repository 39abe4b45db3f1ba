// SmartCache's windows: which samples an epoch trains on when not all of them are kept ready (MONAI's
// SmartCacheDataset; Wu et al., the Clara Train SDK).
#ifndef TRAINYARD_TRAINER_DATA_WINDOW_ORDER_H_
#define TRAINYARD_TRAINER_DATA_WINDOW_ORDER_H_

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <memory>
#include <optional>

#include "trainer/data/sample_stream.h"

namespace trainyard {

// Samples of an epoch, and how many of them are others in the next one.
struct Window {
  int64_t items = 0;    // N; 0: the budget or the rate holds none
  int64_t replace = 0;  // R
  bool operator==(const Window&) const = default;
};

// MONAI's: N = min(int(length rate), length), R = min(ceil(N replace_rate), length - N). With `bytes`, the largest N up
// to that for which N + R items of `item_bytes` fit: the window, and what is being prepared for the next one.
// Pure: of the configuration and the data, not of a machine.
inline Window ResolveWindow(int64_t length, double rate, double replace_rate, std::optional<int64_t> bytes = {},
                            int64_t item_bytes = 1) {
  const auto with = [&](int64_t items) {
    const auto replace = static_cast<int64_t>(std::ceil(static_cast<double>(items) * replace_rate));
    return Window{items, std::min(replace, length - items)};
  };
  int64_t low = 0, high = std::min(static_cast<int64_t>(static_cast<double>(length) * rate), length);
  const auto fits = [&](int64_t items) {
    const Window window = with(items);
    return !bytes || window.items + window.replace <= *bytes / item_bytes;
  };
  if (fits(high)) return with(high);
  // N + R grows with N, or stays: R may fall by one where N grows by one.
  while (high - low > 1) (fits((low + high) / 2) ? low : high) = (low + high) / 2;
  return with(low);
}

// The samples lie in a list in one permutation of the seed. Epoch e holds the places [e R, e R + N) of the list, which
// goes on at its start, in a permutation of its own: after each epoch the first R leave, and the next R come.
class WindowOrder : public Order {
 public:
  // REQUIRES: window.items >= 1, and N + R <= length.
  WindowOrder(int64_t length, Window window, uint64_t seed)
      : length_(length),
        window_(window),
        seed_(seed),
        list_(static_cast<uint64_t>(length), HashKey(seed, NameKey("cache"))) {}

  int64_t items() const override { return window_.items; }
  int64_t replaced() const override { return window_.replace; }
  int64_t ItemAt(int64_t epoch, int64_t position) const override {
    const Permutation within(static_cast<uint64_t>(window_.items),
                             HashKey(seed_, NameKey("window"), static_cast<uint64_t>(epoch)));
    return ItemOf(epoch, static_cast<int64_t>(within(static_cast<uint64_t>(position))));
  }
  // The i-th of epoch e's window, before it is permuted; those from N to N + R come next.
  int64_t ItemOf(int64_t epoch, int64_t i) const {
    const auto length = static_cast<uint64_t>(length_);
    const uint64_t start = static_cast<uint64_t>(epoch) % length * (static_cast<uint64_t>(window_.replace) % length);
    return static_cast<int64_t>(list_((start + static_cast<uint64_t>(i)) % length));
  }

 private:
  int64_t length_;
  Window window_;
  uint64_t seed_;
  Permutation list_;
};

// The order of a window; where that holds every sample, the one that a run without a window has.
inline std::shared_ptr<const Order> MakeWindowOrder(int64_t length, const Window& window, uint64_t seed) {
  if (window.items == length) return std::make_shared<PermutedOrder>(length, seed);
  return std::make_shared<WindowOrder>(length, window, seed);
}

}  // namespace trainyard

#endif  // TRAINYARD_TRAINER_DATA_WINDOW_ORDER_H_
