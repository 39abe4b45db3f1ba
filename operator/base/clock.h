// Time, as a seam: the simulation turns its own clock.
#ifndef TRAINYARD_OPERATOR_BASE_CLOCK_H_
#define TRAINYARD_OPERATOR_BASE_CLOCK_H_

#include <algorithm>
#include <chrono>
#include <optional>
#include <string>
#include <string_view>

namespace trainyard {

using Seconds = std::chrono::duration<double>;
// Wall time: what objects of the API carry. Someone may set it, also back.
using Time = std::chrono::sys_time<std::chrono::microseconds>;

// Time since the machine started, its sleep included (CLOCK_BOOTTIME): what waits, leases and fences are
// measured in. Nobody can set it.
struct SteadyClock {
  using duration = std::chrono::microseconds;
  using rep = duration::rep;
  using period = duration::period;
  using time_point = std::chrono::time_point<SteadyClock>;
  static constexpr bool is_steady = true;
};
using Instant = SteadyClock::time_point;

// This machine's. Thread-safe.
Instant SteadyNow();

class Clock {
 public:
  virtual ~Clock() = default;
  virtual Time Now() const = 0;
  // For a clock that nobody sets back, as in tests, the same.
  virtual Instant Steady() const { return Instant(Now().time_since_epoch()); }
};

// The machine's. Thread-safe.
class SystemClock : public Clock {
 public:
  Time Now() const override {
    return std::chrono::time_point_cast<std::chrono::microseconds>(std::chrono::system_clock::now());
  }
  Instant Steady() const override { return SteadyNow(); }
};

// Of two Times or two Instants.
template <class Point>
double SecondsBetween(Point from, Point to) {
  return Seconds(to - from).count();
}
// Of times as the API writes them.
inline bool IsSameSecond(Time a, Time b) {
  return std::chrono::floor<std::chrono::seconds>(a) == std::chrono::floor<std::chrono::seconds>(b);
}
// Others may name any number of seconds: more than thirty thousand years count as so many, either way.
template <class Point>
Point After(Point point, double seconds) {
  constexpr double kMost = 1e12;
  return point + std::chrono::duration_cast<std::chrono::microseconds>(Seconds(std::clamp(seconds, -kMost, kMost)));
}

// RFC 3339 in UTC: "2026-01-02T03:04:05Z" (metav1.Time), or with microseconds (metav1.MicroTime). It has four digits
// for a year: what lies outside of 1 to 9999 is written as the nearest time that does not.
std::string FormatTime(Time time);
std::string FormatMicroTime(Time time);
// Either form, any fraction, "Z" or an offset. Nothing when it is no such time.
std::optional<Time> ParseTime(std::string_view text);
// "45s", "3m20s", "5h12m", "3d4h": as kubectl prints ages.
std::string FormatDuration(double seconds);

}  // namespace trainyard

#endif  // TRAINYARD_OPERATOR_BASE_CLOCK_H_
