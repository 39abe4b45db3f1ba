#include "trainer/metrics/status_server.h"

#include <nlohmann/json.hpp>
#include <utility>

#include "operator/api/worker_env.h"
#include "trainer/base/environment.h"
#include "trainer/base/listen.h"

namespace trainyard {
namespace {

HttpAnswer Answer(const std::string& path, const std::vector<RankStatus>& ranks) {
  if (path == "/status" && (ranks.empty() || !ranks[0].Reported())) return {503, "application/json", "{}"};
  if (path == "/status")
    return {200, "application/json",
            ranks[0].ToStatusJson().dump(-1, ' ', false, nlohmann::json::error_handler_t::replace)};
  if (path == "/metrics") return {200, "text/plain; version=0.0.4", Exposition(ranks)};
  if (path == "/healthz") return {200, "text/plain", "ok\n"};
  if (path == "/readyz") {
    const bool ready = !ranks.empty() && ranks[0].phase != "starting" && ranks[0].phase != "rendezvous";
    return ready ? HttpAnswer{200, "text/plain", "ok\n"} : HttpAnswer{503, "text/plain", "not ready\n"};
  }
  return {404, "text/plain", "/status, /metrics, /healthz, /readyz\n"};
}

}  // namespace

std::pair<int, int> StatusServer::ListenOn(const std::string& address, int port) {
  return Listen("the status port (TRAINYARD_STATUS_PORT)", address, port);
}

StatusServer::StatusServer(std::pair<int, int> listening, std::function<std::vector<RankStatus>()> ranks)
    : port_(listening.second), endpoint_(listening.first, [ranks = std::move(ranks)](const std::string& path) {
        return Answer(path, ranks());
      }) {}

std::string StatusAddressFromEnvironment() {
  const std::string address = EnvText(env::kPodIp);
  return address.empty() ? "127.0.0.1" : address;
}

int StatusPortFromEnvironment() { return EnvPort(env::kStatusPort).value_or(0); }

}  // namespace trainyard
