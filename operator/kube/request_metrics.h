// Requests to the API server, by verb and by what the server answered.
#ifndef TRAINYARD_OPERATOR_KUBE_REQUEST_METRICS_H_
#define TRAINYARD_OPERATOR_KUBE_REQUEST_METRICS_H_

#include <array>
#include <functional>
#include <string_view>

#include "operator/base/histogram.h"

namespace trainyard::kube {

inline constexpr std::array kRequestBounds{0.005, 0.025, 0.1, 0.25, 0.5, 1.0, 2.0, 4.0, 8.0, 15.0, 30.0, 60.0};

// Thread-safe; Observe neither locks nor allocates.
class RequestMetrics {
 public:
  // `verb`: "GET", "POST", "PATCH", "DELETE", or "WATCH", whose seconds are those until it was accepted or refused.
  // `code`: of the answer; 0 when there was none. Each attempt counts by itself.
  void Observe(std::string_view verb, int code, double seconds);

  // Calls `each` for what was observed at least once: a verb, the code ("200", "429", "none", "other"), the seconds.
  using Visitor = std::function<void(const char* verb, const char* code, const HistogramReading& seconds)>;
  void Visit(const Visitor& each) const;

 private:
  static constexpr size_t kVerbs = 6, kCodes = 19;
  std::array<std::array<Histogram<kRequestBounds>, kCodes>, kVerbs> seconds_;
};

}  // namespace trainyard::kube

#endif  // TRAINYARD_OPERATOR_KUBE_REQUEST_METRICS_H_
