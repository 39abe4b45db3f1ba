// Time and chance of a simulation: everything that is random comes from one seed.
#ifndef TRAINYARD_TESTS_SIM_DICE_H_
#define TRAINYARD_TESTS_SIM_DICE_H_

#include <cstdint>
#include <random>

#include "operator/base/clock.h"

namespace trainyard::sim {

class VirtualClock : public Clock {
 public:
  Time Now() const override { return now_; }
  void Advance(double seconds) { now_ = After(now_, seconds); }

 private:
  Time now_ = *ParseTime("2026-01-01T00:00:00Z");
};

class Dice {
 public:
  explicit Dice(uint64_t seed) : engine_(seed) {}
  bool Chance(double probability) { return std::uniform_real_distribution<double>(0, 1)(engine_) < probability; }
  int64_t Below(int64_t n) { return std::uniform_int_distribution<int64_t>(0, n - 1)(engine_); }
  double Between(double a, double b) { return std::uniform_real_distribution<double>(a, b)(engine_); }

 private:
  std::mt19937_64 engine_;
};

}  // namespace trainyard::sim

#endif  // TRAINYARD_TESTS_SIM_DICE_H_
