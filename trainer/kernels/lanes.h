// Sixteen numbers at once, for the kernels alone.
#ifndef TRAINYARD_TRAINER_KERNELS_LANES_H_
#define TRAINYARD_TRAINER_KERNELS_LANES_H_

#include <cstdint>
#include <utility>

#include "trainer/kernels/scalar_math.h"

namespace trainyard::kernels {
// Internal linkage, as in kernels_impl.cc: each instruction set has a copy of its own.
namespace {

constexpr int64_t kLanes = 16;
typedef float Lanes __attribute__((vector_size(64)));
typedef int32_t IntLanes __attribute__((vector_size(64)));
typedef uint32_t WordLanes __attribute__((vector_size(64)));

template <>
struct WordOf<Lanes> {
  using Type = WordLanes;
};

inline Lanes LoadLanes(const float* x) { return *reinterpret_cast<const Lanes*>(x); }
inline void StoreLanes(float* x, Lanes value) { *reinterpret_cast<Lanes*>(x) = value; }
inline Lanes Max(Lanes a, Lanes b) { return a < b ? b : a; }

// The natural logarithm of numbers from 1 on (the polynomial of Cephes' logf, relative error below 2e-7).
inline Lanes Log(Lanes x) {
  const WordLanes bits = std::bit_cast<WordLanes>(x) - 0x3F3504F3u;  // the mantissa to [sqrt(1/2), sqrt(2))
  const Lanes n = __builtin_convertvector(std::bit_cast<IntLanes>(bits) >> 23, Lanes);
  const Lanes f = std::bit_cast<Lanes>((bits & 0x007FFFFFu) + 0x3F3504F3u) - 1.0f, square = f * f;
  Lanes p = 7.0376836292e-2f * f - 1.1514610310e-1f;
  p = p * f + 1.1676998740e-1f;
  p = p * f - 1.2420140846e-1f;
  p = p * f + 1.4249322787e-1f;
  p = p * f - 1.6668057665e-1f;
  p = p * f + 2.0000714765e-1f;
  p = p * f - 2.4999993993e-1f;
  p = p * f + 3.3333331174e-1f;
  return f + (p * f * square - 0.5f * square - 2.12194440e-4f * n) + 0.693359375f * n;
}

// Exchanges bit kBit of the row's number with that of the lane's.
template <int kBit, size_t... lane>
inline void ExchangeBit(Lanes* rows, std::index_sequence<lane...>) {
  constexpr IntLanes kLow = {((lane & kBit) ? 16 + static_cast<int>(lane ^ kBit) : static_cast<int>(lane))...};
  constexpr IntLanes kHigh = {((lane & kBit) ? 16 + static_cast<int>(lane) : static_cast<int>(lane ^ kBit))...};
  for (int i = 0; i < kLanes; ++i) {
    if (i & kBit) continue;
    const Lanes a = rows[i], b = rows[i + kBit];
    rows[i] = __builtin_shuffle(a, b, kLow);
    rows[i + kBit] = __builtin_shuffle(a, b, kHigh);
  }
}

// 16 rows of 16 numbers: rows to columns.
inline void TransposeTile(Lanes* rows) {
  constexpr auto kAll = std::make_index_sequence<kLanes>();
  ExchangeBit<1>(rows, kAll);
  ExchangeBit<2>(rows, kAll);
  ExchangeBit<4>(rows, kAll);
  ExchangeBit<8>(rows, kAll);
}

}  // namespace
}  // namespace trainyard::kernels

#endif  // TRAINYARD_TRAINER_KERNELS_LANES_H_
