// The largest of windows of 3 x 3 x 3, for kernels_impl.cc alone.
#ifndef TRAINYARD_TRAINER_KERNELS_MAX_POOL_IMPL_H_
#define TRAINYARD_TRAINER_KERNELS_MAX_POOL_IMPL_H_

#include <algorithm>
#include <bit>
#include <cstdint>
#include <limits>
#include <vector>

#include "trainer/kernels/kernels.h"
#include "trainer/kernels/scalar_math.h"

namespace trainyard::kernels {
namespace {

// A whole number that orders as a value does, NaN above all, and in its lower half where in the window the value is:
// the earlier, the larger. So one comparison chooses both, without a branch.
template <class T>
struct Ranked;
template <class Word, class Integer, Word kInfinity>
struct RankedBits {
  using Key = Integer;
  static constexpr int kBits = 8 * sizeof(Word);
  static constexpr Word kMagnitude = static_cast<Word>(~Word{0}) >> 1;
  static Key Of(Word bits) {
    const auto magnitude = static_cast<Key>(bits & kMagnitude);
    const Key value = bits > kMagnitude ? -magnitude : magnitude;
    return (magnitude > static_cast<Key>(kInfinity) ? static_cast<Key>(kMagnitude) : value) * (Key{1} << kBits);
  }
  static Word Bits(Key key) {
    const Key value = key >> kBits;
    return static_cast<Word>(value < 0 ? static_cast<Key>(kMagnitude) + 1 - value : value);
  }
};
template <>
struct Ranked<Bf16> : RankedBits<uint16_t, int32_t, 0x7F80> {
  static Key Of(Bf16 x) { return RankedBits::Of(x.bits); }
  static Bf16 Value(Key key) { return {Bits(key)}; }
};
template <>
struct Ranked<Fp16> : RankedBits<uint16_t, int32_t, 0x7C00> {
  static Key Of(Fp16 x) { return RankedBits::Of(x.bits); }
  static Fp16 Value(Key key) { return {Bits(key)}; }
};
template <>
struct Ranked<float> : RankedBits<uint32_t, int64_t, 0x7F800000> {
  static Key Of(float x) { return RankedBits::Of(std::bit_cast<uint32_t>(x)); }
  static float Value(Key key) { return std::bit_cast<float>(Bits(key)); }
};

// Of the window around place 2 `at` of an axis: the places that there are, and which of the three the first one is.
struct PoolWindow {
  PoolWindow(int64_t at, int64_t size)
      : begin(std::max<int64_t>(2 * at - 1, 0)), end(std::min(2 * at + 2, size)), first(begin - (2 * at - 1)) {}
  int64_t begin, end, first;
};

// The largest of a window's lines of n keys each, key(line, i); an earlier line counts `step` more than the next.
template <class T, class Read, class Key = typename Ranked<T>::Key>
inline void LargestLine(const PoolWindow& window, Key step, int64_t n, Key* largest, Read key) {
  Key more = (2 - static_cast<Key>(window.first)) * step;
#pragma omp simd
  for (int64_t i = 0; i < n; ++i) largest[i] = key(window.begin, i) + more;
  for (int64_t line = window.begin + 1; line < window.end; ++line) {
    more -= step;
#pragma omp simd
    for (int64_t i = 0; i < n; ++i) {
      const Key other = key(line, i) + more;
      largest[i] = other > largest[i] ? other : largest[i];
    }
  }
}

template <class T>
void MaxPool(const MaxPoolArgs<T>& a, int64_t begin, int64_t end) {
  using Key = typename Ranked<T>::Key;
  constexpr Key kLowest = std::numeric_limits<Key>::min();  // below a value's, also with what is added to it
  const auto [D, H, W] = a.size;
  const auto half = [](int64_t size) { return (size + 1) / 2; };
  const int64_t of_channel = half(D) * half(H) * half(W);
  std::vector<Key> plane(static_cast<size_t>(H * W)),
      row(static_cast<size_t>(W + 2), kLowest);  // with a place before and behind
  for (int64_t channel = begin; channel < end; ++channel) {
    const T* x = a.x + channel * D * H * W;
    T* y = a.y + channel * of_channel;
    int32_t* places = a.places + channel * of_channel;
    for (int64_t d = 0; d < half(D); ++d) {
      LargestLine<T>(PoolWindow(d, D), Key{9}, H * W, plane.data(),
                     [&](int64_t z, int64_t i) { return Ranked<T>::Of(x[z * H * W + i]); });
      for (int64_t h = 0; h < half(H); ++h) {
        LargestLine<T>(PoolWindow(h, H), Key{3}, W, row.data() + 1,
                       [&](int64_t line, int64_t i) { return plane[line * W + i]; });
        const int64_t origin = ((2 * d - 1) * H + 2 * h - 1) * W - 1;
        for (int64_t w = 0; w < half(W); ++w) {
          const Key largest = std::max({row[2 * w] + 2, row[2 * w + 1] + 1, row[2 * w + 2]});
          const auto at = 26 - static_cast<int32_t>(largest & 31);
          *y++ = Ranked<T>::Value(largest);
          *places++ = static_cast<int32_t>(origin + 2 * w + (at / 9 * H + at / 3 % 3) * W + at % 3);
        }
      }
    }
  }
}

template <class T>
void MaxPoolBackward(const T* dy, const int32_t* places, int64_t n, T* dx) {
  for (int64_t i = 0; i < n; ++i) Store(Load(dx[places[i]]) + Load(dy[i]), dx[places[i]]);
}

}  // namespace
}  // namespace trainyard::kernels

#endif  // TRAINYARD_TRAINER_KERNELS_MAX_POOL_IMPL_H_
