#include "operator/base/clock.h"

#include <time.h>

#include <cstdio>
#include <ctime>

namespace trainyard {
namespace {

std::string Format(Time time, bool micro) {
  using std::chrono::sys_days, std::chrono::year, std::chrono::microseconds;
  constexpr Time kFirst = sys_days(year(1) / 1 / 1), kLast = Time(sys_days(year(10000) / 1 / 1)) - microseconds(1);
  const auto since_epoch = std::clamp(time, kFirst, kLast).time_since_epoch();
  const auto seconds = std::chrono::floor<std::chrono::seconds>(since_epoch);
  const std::time_t t = seconds.count();
  std::tm tm{};
  gmtime_r(&t, &tm);
  char text[64];
  const int length = std::snprintf(text, sizeof text, "%04d-%02d-%02dT%02d:%02d:%02d", tm.tm_year + 1900, tm.tm_mon + 1,
                                   tm.tm_mday, tm.tm_hour, tm.tm_min, tm.tm_sec);
  std::string out(text, static_cast<size_t>(length));
  if (micro) {
    std::snprintf(text, sizeof text, ".%06lld", static_cast<long long>((since_epoch - seconds).count()));
    out += text;
  }
  return out + "Z";
}

}  // namespace

Instant SteadyNow() {
  timespec now{};
  clock_gettime(CLOCK_BOOTTIME, &now);
  return Instant(std::chrono::seconds(now.tv_sec) + std::chrono::microseconds(now.tv_nsec / 1000));
}

std::string FormatTime(Time time) { return Format(time, false); }
std::string FormatMicroTime(Time time) { return Format(time, true); }

std::optional<Time> ParseTime(std::string_view text) {
  using std::chrono::year, std::chrono::month, std::chrono::day, std::chrono::hours, std::chrono::minutes;
  size_t at = 0;
  bool sound = true;
  const auto number = [&](size_t digits, unsigned most) {
    unsigned value = 0;
    for (const size_t end = at + digits; at < end; ++at) {
      const bool digit = at < text.size() && text[at] >= '0' && text[at] <= '9';
      sound = sound && digit;
      value = 10 * value + (digit ? static_cast<unsigned>(text[at] - '0') : 0);
    }
    sound = sound && value <= most;
    return value;
  };
  const auto mark = [&](char c) { sound = sound && at < text.size() && text[at] == c && ++at > 0; };
  const year years(static_cast<int>(number(4, 9999)));
  mark('-');
  const month months(number(2, 12));
  mark('-');
  const std::chrono::year_month_day date(years, months, day(number(2, 31)));
  mark('T');
  Time time = std::chrono::sys_days(date) + hours(number(2, 23));
  mark(':');
  time += minutes(number(2, 59));
  mark(':');
  time += std::chrono::seconds(number(2, 60));  // a leap second
  if (!sound || !date.ok()) return std::nullopt;
  if (at < text.size() && text[at] == '.') {
    int64_t micro = 0, unit = 100000;
    for (++at; at < text.size() && text[at] >= '0' && text[at] <= '9'; ++at, unit /= 10)
      micro += unit * (text[at] - '0');
    time += std::chrono::microseconds(micro);
  }
  const std::string_view zone = text.substr(at);
  if (zone == "Z" || zone == "z") return time;
  if (zone.size() != 6 || (zone[0] != '+' && zone[0] != '-')) return std::nullopt;
  ++at;
  auto offset = minutes(60 * number(2, 23));
  mark(':');
  offset += minutes(number(2, 59));
  if (!sound) return std::nullopt;
  return zone[0] == '+' ? time - offset : time + offset;
}

std::string FormatDuration(double seconds) {
  const auto s = static_cast<long long>(seconds < 0 ? 0 : seconds);
  const auto two = [](long long a, const char* ua, long long b, const char* ub) {
    return std::to_string(a) + ua + (b != 0 ? std::to_string(b) + ub : "");
  };
  if (s < 120) return std::to_string(s) + "s";
  if (s < 600) return two(s / 60, "m", s % 60, "s");
  if (s < 3 * 3600) return std::to_string(s / 60) + "m";
  if (s < 8 * 3600) return two(s / 3600, "h", s % 3600 / 60, "m");
  if (s < 48 * 3600) return std::to_string(s / 3600) + "h";
  return two(s / 86400, "d", s / 86400 < 8 ? s % 86400 / 3600 : 0, "h");
}

}  // namespace trainyard
