#include "operator/operator_endpoint.h"

#include <charconv>
#include <memory>
#include <system_error>
#include <utility>
#include <vector>

#include "operator/base/clock.h"
#include "operator/net/address.h"
#include "operator/net/listen.h"
#include "operator/net/resolve.h"

namespace trainyard {
namespace {

constexpr double kLookUpSeconds = 10;  // of the host

// The text of /metrics, which takes longer the more there is of everything. It is made anew when ten times that has
// passed since the last: however many ask, the one thread that answers has time for whoever asks whether it lives.
class MetricsText {
 public:
  explicit MetricsText(std::function<std::string()> make) : make_(std::move(make)) {}
  const std::string& Get() {
    constexpr double kShare = 10;
    const Instant begin = SteadyNow();
    if (begin < next_) return text_;
    text_ = make_();
    const Instant end = SteadyNow();
    next_ = After(end, kShare * SecondsBetween(begin, end));
    return text_;
  }

 private:
  const std::function<std::string()> make_;
  std::string text_;
  Instant next_{};
};

HttpAnswer Answer(const std::string& path, const Runtime& runtime, MetricsText& metrics) {
  if (path == "/metrics") return {200, "text/plain; version=0.0.4", metrics.Get()};
  if (path == "/healthz") return {200, "text/plain", "ok"};
  if (path == "/readyz") {
    const std::string reason = runtime.Unready();
    return reason.empty() ? HttpAnswer{200, "text/plain", "ok"} : HttpAnswer{503, "text/plain", reason};
  }
  return {404, "text/plain", "/metrics, /healthz, /readyz\n"};
}

Result<int> ListenOn(const ListenPlace& place, const StopFlag& stop) {
  const Result<std::vector<net::Address>> addresses =
      net::Resolve(place.host, place.port, net::Wait::For(kLookUpSeconds, stop));
  return addresses.ok() ? net::Listen(addresses->front()) : addresses.status();
}

}  // namespace

Result<ListenPlace> ParseListen(const std::string& listen) {
  const size_t colon = listen.rfind(':');
  const std::string digits = colon == std::string::npos ? "" : listen.substr(colon + 1);
  ListenPlace place;
  const auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), place.port);
  if (digits.empty() || colon == 0 || error != std::errc() || end != digits.data() + digits.size() || place.port < 1 ||
      place.port > 65535)
    return Status(Code::kInvalid, "--listen: " + listen + " is not allowed; allowed: address:port");
  place.host = listen.substr(0, colon);
  if (place.host.starts_with("[") && place.host.ends_with("]"))
    place.host = place.host.substr(1, place.host.size() - 2);
  return place;
}

Result<std::unique_ptr<HttpEndpoint>> ServeOperator(const ListenPlace& place, const StopFlag& stop,
                                                    const Runtime& runtime,
                                                    std::function<std::string()> client_metrics) {
  const Result<int> listening = ListenOn(place, stop);
  if (!listening.ok()) return listening.status().With("--listen: " + net::HostPort(place.host, place.port));
  const auto metrics = std::make_shared<MetricsText>(
      [&runtime, of_client = std::move(client_metrics)] { return runtime.Metrics() + of_client(); });
  try {
    return std::make_unique<HttpEndpoint>(
        *listening, [&runtime, metrics](const std::string& path) { return Answer(path, runtime, *metrics); });
  } catch (const std::system_error& error) {
    return Status(Code::kUnavailable, std::string("--listen: ") + error.what());
  }
}

}  // namespace trainyard
