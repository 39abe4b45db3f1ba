#include "operator/run_command.h"

#include <httplib.h>
#include <unistd.h>

#include <charconv>
#include <cstdio>
#include <thread>

#include "operator/base/exit_codes.h"
#include "operator/kube/rest_client.h"
#include "operator/runtime.h"
#include "operator/stop_signals.h"

namespace trainyard {
namespace {

// /metrics, /healthz (alive, whatever the API server does) and /readyz (the caches are whole).
class OperatorServer {
 public:
  explicit OperatorServer(const Runtime& runtime) {
    server_.new_task_queue = [] { return new httplib::ThreadPool(2); };
    server_.Get("/metrics", [&](const httplib::Request&, httplib::Response& response) {
      response.set_content(runtime.Metrics(), "text/plain; version=0.0.4");
    });
    server_.Get("/healthz",
                [](const httplib::Request&, httplib::Response& response) { response.set_content("ok", "text/plain"); });
    server_.Get("/readyz", [&](const httplib::Request&, httplib::Response& response) {
      response.status = runtime.Ready() ? 200 : 503;
      response.set_content(runtime.Ready() ? "ok" : "the caches have not had their first lists", "text/plain");
    });
  }
  ~OperatorServer() {
    server_.stop();
    if (thread_.joinable()) thread_.join();
  }
  bool Start(const std::string& host, int port) {
    if (!server_.bind_to_port(host.c_str(), port)) return false;
    thread_ = std::thread([this] { server_.listen_after_bind(); });
    return true;
  }

 private:
  httplib::Server server_;
  std::thread thread_;
};

}  // namespace

int RunOperator(const RunOptions& options) {
  const Logger log(STDERR_FILENO, Logger::Form::kJson, LogLevel::kInfo);
  const size_t colon = options.listen.rfind(':');
  int port = 0;
  const std::string digits = colon == std::string::npos ? "" : options.listen.substr(colon + 1);
  const auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), port);
  if (digits.empty() || error != std::errc() || end != digits.data() + digits.size() || port < 1 || port > 65535) {
    std::fprintf(stderr, "trainyard-operator: --listen: %s is not allowed; allowed: address:port\n",
                 options.listen.c_str());
    return kExitInvalid;
  }
  const Result<kube::Endpoint> endpoint =
      options.kubeconfig.empty() ? kube::InClusterEndpoint() : kube::ReadKubeconfig(options.kubeconfig);
  if (!endpoint.ok()) {
    std::fprintf(stderr, "trainyard-operator: %s\n", endpoint.status().message().c_str());
    return kExitInvalid;
  }
  CatchStopSignals();
  const SystemClock clock;
  kube::RestClient client(*endpoint, clock);
  Runtime runtime(client, clock, log,
                  {.ns = options.ns,
                   .instance = "trainyard-operator",
                   .workers = 4,
                   .progress_interval_seconds = 10,
                   .poll_seconds = 5});
  OperatorServer server(runtime);
  if (!server.Start(options.listen.substr(0, colon), port)) {
    std::fprintf(stderr, "trainyard-operator: --listen: %s is in use or not ours\n", options.listen.c_str());
    return kExitNetwork;
  }
  runtime.Start();
  log.Info("started", {{"server", endpoint->host + ":" + std::to_string(endpoint->port)},
                       {"namespace", options.ns.empty() ? "all" : options.ns}});
  while (StopSignals() == 0) std::this_thread::sleep_for(std::chrono::milliseconds(100));
  runtime.Stop();
  log.Info("stopped");
  return 0;
}

}  // namespace trainyard
