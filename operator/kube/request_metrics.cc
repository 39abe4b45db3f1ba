#include "operator/kube/request_metrics.h"

#include <algorithm>
#include <charconv>
#include <cstring>

namespace trainyard::kube {
namespace {

// The last of each stands for all others: what a server invents shall not be a series.
constexpr const char* kVerbNames[] = {"GET", "POST", "PATCH", "DELETE", "WATCH", "other"};
constexpr const char* kCodeNames[] = {"none", "200", "201", "202", "400", "401", "403", "404", "405",  "409",
                                      "410",  "413", "415", "422", "429", "500", "503", "504", "other"};

template <size_t N>
size_t IndexOf(const char* const (&names)[N], std::string_view name) {
  const auto* const found = std::find(names, names + N, name);
  return std::min<size_t>(static_cast<size_t>(found - names), N - 1);
}

}  // namespace

void RequestMetrics::Observe(std::string_view verb, int code, double seconds) {
  static_assert(std::size(kVerbNames) == kVerbs && std::size(kCodeNames) == kCodes);
  char digits[16];
  const char* const end = std::to_chars(digits, digits + sizeof digits, code).ptr;
  const std::string_view name = code == 0 ? "none" : std::string_view(digits, static_cast<size_t>(end - digits));
  seconds_[IndexOf(kVerbNames, verb)][IndexOf(kCodeNames, name)].Observe(seconds);
}

void RequestMetrics::Visit(const Visitor& each) const {
  for (size_t verb = 0; verb < kVerbs; ++verb) {
    for (size_t code = 0; code < kCodes; ++code) {
      const HistogramReading seconds = seconds_[verb][code].Read();
      if (seconds.count() > 0) each(kVerbNames[verb], kCodeNames[code], seconds);
    }
  }
}

}  // namespace trainyard::kube
