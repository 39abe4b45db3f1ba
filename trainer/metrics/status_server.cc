#include "trainer/metrics/status_server.h"

#include <httplib.h>

#include <cstdlib>
#include <thread>

#include "trainer/base/error.h"

namespace trainyard {

struct StatusServer::Impl {
  httplib::Server server;
  std::thread thread;
};

StatusServer::StatusServer(const std::string& address, int port, const std::function<std::vector<RankStatus>()>& ranks)
    : impl_(std::make_unique<Impl>()) {
  httplib::Server& server = impl_->server;
  server.new_task_queue = [] { return new httplib::ThreadPool(2); };
  server.set_keep_alive_timeout(1);
  // The library's default sets SO_REUSEPORT, with which two servers share a port without noticing.
  server.set_socket_options([](socket_t socket) {
    const int yes = 1;
    setsockopt(socket, SOL_SOCKET, SO_REUSEADDR, &yes, sizeof yes);
  });
  server.Get("/status", [ranks](const httplib::Request&, httplib::Response& response) {
    const std::vector<RankStatus> all = ranks();
    response.status = all.empty() ? 503 : 200;
    response.set_content(all.empty() ? "{}" : all[0].ToStatusJson().dump(), "application/json");
  });
  server.Get("/metrics", [ranks](const httplib::Request&, httplib::Response& response) {
    response.set_content(Exposition(ranks()), "text/plain; version=0.0.4");
  });
  server.Get("/healthz",
             [](const httplib::Request&, httplib::Response& response) { response.set_content("ok\n", "text/plain"); });
  server.Get("/readyz", [ranks](const httplib::Request&, httplib::Response& response) {
    const std::vector<RankStatus> all = ranks();
    const bool ready = !all.empty() && all[0].phase != "starting" && all[0].phase != "rendezvous";
    response.status = ready ? 200 : 503;
    response.set_content(ready ? "ok\n" : "not ready\n", "text/plain");
  });
  port_ =
      port == 0 ? server.bind_to_any_port(address.c_str()) : (server.bind_to_port(address.c_str(), port) ? port : -1);
  if (port_ < 0)
    throw PeerError("status port " + address + ":" + std::to_string(port) + " is in use or cannot be bound");
  impl_->thread = std::thread([this] { impl_->server.listen_after_bind(); });
  while (!server.is_running()) std::this_thread::yield();
}

StatusServer::~StatusServer() {
  impl_->server.stop();
  impl_->thread.join();
}

std::string StatusAddressFromEnvironment() {
  const char* address = std::getenv("TRAINYARD_POD_IP");
  return address && *address ? address : "127.0.0.1";
}

int StatusPortFromEnvironment() {
  const char* port = std::getenv("TRAINYARD_STATUS_PORT");
  if (!port || !*port) return 0;
  char* end = nullptr;
  const long value = std::strtol(port, &end, 10);
  if (*end || value < 1 || value > 65535)
    throw ConfigError("TRAINYARD_STATUS_PORT: " + std::string(port) +
                      " is not allowed; expected a port from 1 to 65535");
  return static_cast<int>(value);
}

}  // namespace trainyard
