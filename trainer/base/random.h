// Counter-based random numbers: no state is ever saved, every draw is a pure function of its key.
// Philox4x32-10 is from Salmon et al., "Parallel random numbers: as easy as 1, 2, 3" (SC 2011).
#ifndef TRAINYARD_TRAINER_BASE_RANDOM_H_
#define TRAINYARD_TRAINER_BASE_RANDOM_H_

#include <array>
#include <cmath>
#include <cstdint>
#include <numbers>
#include <string_view>

namespace trainyard {

using PhiloxBlock = std::array<uint32_t, 4>;

inline PhiloxBlock Philox(PhiloxBlock counter, uint64_t key) {
  uint32_t k0 = static_cast<uint32_t>(key), k1 = static_cast<uint32_t>(key >> 32);
  for (int round = 0; round < 10; ++round) {
    const uint64_t p0 = uint64_t{0xD2511F53u} * counter[0];
    const uint64_t p1 = uint64_t{0xCD9E8D57u} * counter[2];
    counter = {static_cast<uint32_t>(p1 >> 32) ^ counter[1] ^ k0, static_cast<uint32_t>(p1),
               static_cast<uint32_t>(p0 >> 32) ^ counter[3] ^ k1, static_cast<uint32_t>(p0)};
    k0 += 0x9E3779B9u;
    k1 += 0xBB67AE85u;
  }
  return counter;
}

// Mixes 64 bits (the finalizer of SplitMix64).
inline uint64_t Mix64(uint64_t x) {
  x = (x ^ (x >> 30)) * 0xBF58476D1CE4E5B9ull;
  x = (x ^ (x >> 27)) * 0x94D049BB133111EBull;
  return x ^ (x >> 31);
}

// A key from several numbers; the order matters.
inline uint64_t HashKey(uint64_t a, uint64_t b, uint64_t c = 0) {
  return Mix64(Mix64(Mix64(a + 0x9E3779B97F4A7C15ull) ^ (b + 0xD1B54A32D192ED03ull)) ^ (c + 0x8CB92BA72F3D8DD7ull));
}

// FNV-1a: stable across machines, used to turn a purpose's name into a key.
constexpr uint64_t NameKey(std::string_view name) {
  uint64_t h = 0xCBF29CE484222325ull;
  for (char c : name) h = (h ^ static_cast<unsigned char>(c)) * 0x100000001B3ull;
  return h;
}

// A sequence of draws keyed by (seed, purpose, index). Copyable; two with the same key give the
// same draws. Not for concurrent use.
class KeyedRandom {
 public:
  KeyedRandom(uint64_t seed, std::string_view purpose, uint64_t index = 0)
      : key_(HashKey(seed, NameKey(purpose), index)) {}

  uint32_t NextU32() {
    if (used_ == 4) {
      block_ = Philox({static_cast<uint32_t>(counter_), static_cast<uint32_t>(counter_ >> 32), 0, 0}, key_);
      ++counter_;
      used_ = 0;
    }
    return block_[used_++];
  }
  uint64_t NextU64() {
    const uint64_t high = NextU32();
    return high << 32 | NextU32();
  }
  // [0, 1) with 24 random bits, exact in float.
  float Uniform() { return static_cast<float>(NextU32() >> 8) * 0x1p-24f; }
  // [0, 1) with 53 random bits.
  double UniformDouble() { return static_cast<double>(NextU64() >> 11) * 0x1p-53; }
  // [0, n). REQUIRES: n > 0. The bias is below n / 2^64.
  uint64_t Below(uint64_t n) { return static_cast<uint64_t>((static_cast<unsigned __int128>(NextU64()) * n) >> 64); }
  // The draws of the blocks from this one on: of four NextU32 each, as of a normal value, or two of UniformDouble.
  void Seek(uint64_t block) {
    counter_ = block;
    used_ = 4;
  }
  // Standard normal (Box-Muller, one of the pair).
  double Normal() {
    const double u = 1.0 - UniformDouble(), v = UniformDouble();
    return std::sqrt(-2.0 * std::log(u)) * std::cos(2.0 * std::numbers::pi * v);
  }

 private:
  uint64_t key_;
  uint64_t counter_ = 0;
  PhiloxBlock block_{};
  int used_ = 4;
};

}  // namespace trainyard

#endif  // TRAINYARD_TRAINER_BASE_RANDOM_H_
