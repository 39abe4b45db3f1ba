// What every kernel is made of, for kernels_impl.cc alone: hashes for dropout, conversions, exponentials. What is a
// template over Float or Word takes a number, or 16 of them at once (lanes.h).
#ifndef TRAINYARD_TRAINER_KERNELS_SCALAR_MATH_H_
#define TRAINYARD_TRAINER_KERNELS_SCALAR_MATH_H_

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <numbers>

#include "trainer/kernels/kernels.h"

namespace trainyard::kernels {
// Internal linkage, as in kernels_impl.cc: each instruction set has a copy of its own.
namespace {

inline uint64_t RowKey(uint64_t key, uint64_t row) {
  uint64_t x = key + (row + 1) * 0x9E3779B97F4A7C15ull;
  x = (x ^ (x >> 30)) * 0xBF58476D1CE4E5B9ull;
  x = (x ^ (x >> 27)) * 0x94D049BB133111EBull;
  return x ^ (x >> 31);
}

// A 32-bit finalizer of full avalanche ("lowbias32"): cheap enough to run per element.
template <class Word>
inline Word MixColumn(Word seed, uint32_t column) {
  Word x = seed + column * 0x9E3779B9u;
  x = (x ^ (x >> 16)) * 0x7FEB352Du;
  x = (x ^ (x >> 15)) * 0x846CA68Bu;
  return x ^ (x >> 16);
}

// What the elements of one row are multiplied by. Without dropout nothing is hashed; the factor stays a
// value that the compiler does not know, so that it is multiplied and rounded in the same places.
template <bool kDrops>
struct DropoutRow {
  uint32_t seed = 0, threshold = 0;
  float keep_scale;
  DropoutRow(const Dropout& d, uint64_t row) : keep_scale(1.0f / (1.0f - d.p)) {
    if (!kDrops) return;
    seed = static_cast<uint32_t>(RowKey(d.key, row));
    threshold = static_cast<uint32_t>(static_cast<double>(d.p) * 4294967296.0);
  }
  float Factor(uint32_t column) const { return !kDrops || MixColumn(seed, column) >= threshold ? keep_scale : 0.0f; }
};

// Calls run.operator()<true>() if anything is dropped, else run.operator()<false>().
template <class Run>
inline void WithDropout(const Dropout& dropout, Run run) {
  dropout.p > 0 ? run.template operator()<true>() : run.template operator()<false>();
}

inline float Load(float x) { return x; }
inline float Load(Bf16 x) {
  const uint32_t bits = static_cast<uint32_t>(x.bits) << 16;
  float y;
  std::memcpy(&y, &bits, 4);
  return y;
}
// Each case is computed and one chosen, so that loops of it become vectors; none needs denormal numbers of float.
inline float Load(Fp16 x) {
  const uint32_t magnitude = x.bits & 0x7FFFu, sign = static_cast<uint32_t>(x.bits & 0x8000u) << 16;
  constexpr uint32_t kRebias = 112u << 23;  // 127 - 15
  const uint32_t shifted = (magnitude << 13) + kRebias;
  const uint32_t large = magnitude >= 0x7C00u ? shifted + kRebias : shifted;  // infinite, or no number
  const float small = static_cast<float>(static_cast<int32_t>(magnitude)) * 5.9604644775390625e-8f;  // 2^-24 each
  return std::bit_cast<float>(sign | (magnitude < 0x0400u ? std::bit_cast<uint32_t>(small) : large));
}
inline void Store(float x, float& y) { y = x; }
inline void Store(float x, Bf16& y) {
  uint32_t bits;
  std::memcpy(&bits, &x, 4);
  y.bits = static_cast<uint16_t>((bits + 0x7FFFu + ((bits >> 16) & 1u)) >> 16);
}
inline void Store(float x, Fp16& y) {
  const uint32_t bits = std::bit_cast<uint32_t>(x), magnitude = bits & 0x7FFFFFFFu, sign = (bits >> 16) & 0x8000u;
  constexpr uint32_t kHalf = 0x3F000000u;  // 0.5, whose last digit is 2^-24: adding it rounds as wanted
  const uint32_t small = std::bit_cast<uint32_t>(std::bit_cast<float>(magnitude) + 0.5f) - kHalf;
  const uint32_t normal = (magnitude - (112u << 23) + 0x0FFFu + ((magnitude >> 13) & 1u)) >> 13;
  const uint32_t large = magnitude > 0x7F800000u ? 0x7E00u : 0x7C00u;                  // no number; infinite
  const uint32_t finite = magnitude < 0x38800000u ? small : normal;                    // below 2^-14
  y.bits = static_cast<uint16_t>(sign | (magnitude >= 0x47800000u ? large : finite));  // 2^16
}

template <class Float>
struct WordOf;
template <>
struct WordOf<float> {
  using Type = uint32_t;
};

// e^x for x <= 88: 2^n times a polynomial on [-ln2/2, ln2/2]; relative error below 2e-7. Exactly zero
// below -80, so that weights which do not count never become denormal numbers, which are slow.
template <class Float>
inline Float Exp(Float x) {
  // 1.5 * 2^23 more rounds to an integer, n, and leaves it in the lowest bits; with 127, as 2^n has it for an exponent.
  constexpr float kRound = 12582912.0f + 127;
  using Word = typename WordOf<Float>::Type;
  const Float zero{};
  const auto vanishes = x < -80.0f;  // and is computed all the same
  const Float t = x * 1.44269504f + kRound;
  const Float n = t - kRound;
  const Float r = (x - n * 0.693359375f) + n * 2.12194440e-4f;
  Float p = 1.9875691500e-4f * r + 1.3981999507e-3f;
  p = p * r + 8.3334519073e-3f;
  p = p * r + 4.1665795894e-2f;
  p = p * r + 1.6666665459e-1f;
  p = p * r + 5.0000001201e-1f;
  p = p * r * r + r + 1.0f;
  const Float scale = std::bit_cast<Float>(std::bit_cast<Word>(t) << 23);
  return vanishes ? zero : p * scale;
}

// The normal distribution function from e = exp(-x^2 / 2): erf of Abramowitz and Stegun 7.1.26,
// absolute error below 1.5e-7.
inline float NormalCdf(float x, float e) {
  const float a = (x < 0 ? -x : x) * static_cast<float>(1.0 / std::numbers::sqrt2);
  const float t = 1.0f / (1.0f + 0.3275911f * a);
  const float tail =
      ((((1.061405429f * t - 1.453152027f) * t + 1.421413741f) * t - 0.284496736f) * t + 0.254829592f) * t * e;
  return x < 0 ? 0.5f * tail : 1.0f - 0.5f * tail;
}

}  // namespace
}  // namespace trainyard::kernels

#endif  // TRAINYARD_TRAINER_KERNELS_SCALAR_MATH_H_
