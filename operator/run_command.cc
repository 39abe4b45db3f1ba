#include "operator/run_command.h"

#include <httplib.h>
#include <malloc.h>
#include <unistd.h>

#include <charconv>
#include <cstdio>
#include <functional>
#include <memory>
#include <random>
#include <thread>

#include "operator/base/exit_codes.h"
#include "operator/base/file.h"
#include "operator/kube/fenced_client.h"
#include "operator/kube/leader_election.h"
#include "operator/kube/limited_client.h"
#include "operator/kube/rest_client.h"
#include "operator/kube/retrying_client.h"
#include "operator/metrics.h"
#include "operator/net/address.h"
#include "operator/runtime.h"
#include "operator/stop_signals.h"

namespace trainyard {
namespace {

// Far above what jobs need, and below what would crowd others out: a defect of ours shall not be an attack.
constexpr double kRequestsPerSecond = 1000, kRequestBurst = 2000;
// Well within the ten seconds in which a lease must be renewed.
constexpr double kLeaseRequestSeconds = 4;

// /metrics, /healthz (alive, whatever the API server does) and /readyz (the caches are whole, and kept so).
class OperatorServer {
 public:
  OperatorServer(const Runtime& runtime, const kube::TokenBucket& bucket, const kube::RequestMetrics& requests,
                 const std::function<bool()>& leads) {
    server_.new_task_queue = [] { return new httplib::ThreadPool(2); };
    server_.Get("/metrics", [&, leads](const httplib::Request&, httplib::Response& response) {
      response.set_content(runtime.Metrics() + ClientMetrics(bucket, requests, leads()), "text/plain; version=0.0.4");
    });
    server_.Get("/healthz",
                [](const httplib::Request&, httplib::Response& response) { response.set_content("ok", "text/plain"); });
    server_.Get("/readyz", [&runtime](const httplib::Request&, httplib::Response& response) {
      const std::string reason = runtime.Unready();
      response.status = reason.empty() ? 200 : 503;
      response.set_content(reason.empty() ? "ok" : reason, "text/plain");
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

// Steps until it is destroyed; then lets go of the lease. On a connection of its own, outside the bucket: a busy
// operator must not lose its lease in its own queue.
class Candidate {
 public:
  Candidate(const kube::Endpoint& endpoint, const Clock& clock, const Logger& log,
            kube::LeaderElection::Options options)
      : client_(endpoint, clock, stop_, {.max_connections = 1, .request_seconds = kLeaseRequestSeconds}),
        farewell_(endpoint, clock, never_, {.max_connections = 1, .request_seconds = kLeaseRequestSeconds}),
        election_(client_, clock, log, std::move(options)),
        thread_([this] {
          while (stop_.Sleep(wait_)) wait_ = election_.Step();
        }) {}
  ~Candidate() {
    stop_.Set();
    thread_.join();
    election_.Release(farewell_);
  }
  const kube::LeaderElection& election() const { return election_; }

 private:
  StopFlag stop_, never_;
  kube::RestClient client_, farewell_;
  kube::LeaderElection election_;
  double wait_ = 0;
  std::thread thread_;
};

// Of this process, and no other one ever.
std::string LeaseIdentity() {
  char host[256] = "";
  gethostname(host, sizeof host - 1);
  char suffix[32];
  std::snprintf(suffix, sizeof suffix, "_%08x%08x", std::random_device()(), std::random_device()());
  return std::string(host) + suffix;
}

Result<std::string> LeaseNamespace(const RunOptions& options) {
  if (!options.lease_namespace.empty()) return options.lease_namespace;
  Result<std::string> own = ReadWhole("/var/run/secrets/kubernetes.io/serviceaccount/namespace");
  if (own.ok() && !own->empty()) return own;
  return Status(Code::kInvalid, "--lease-namespace: needed with --leader-elect outside of a pod");
}

// "address:port"
Status ParseListen(const std::string& listen, std::string& host, int& port) {
  const size_t colon = listen.rfind(':');
  const std::string digits = colon == std::string::npos ? "" : listen.substr(colon + 1);
  const auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), port);
  if (digits.empty() || error != std::errc() || end != digits.data() + digits.size() || port < 1 || port > 65535)
    return Status(Code::kInvalid, "--listen: " + listen + " is not allowed; allowed: address:port");
  host = listen.substr(0, colon);
  if (host.starts_with("[") && host.ends_with("]")) host = host.substr(1, host.size() - 2);
  return Status::Ok();
}

int Refuse(const Status& status, int code) {
  std::fprintf(stderr, "trainyard-operator: %s\n", status.message().c_str());
  return code;
}

// The client's layers, from the one that reconciles use to the one that speaks HTTP.
struct Clients {
  Clients(const kube::Endpoint& endpoint, const Clock& clock, const StopFlag& stop, std::function<bool()> leads)
      : rest(endpoint, clock, stop, {.metrics = &requests}),
        fenced(rest, std::move(leads)),
        bucket(kRequestsPerSecond, kRequestBurst, clock),
        limited(fenced, bucket, stop),
        retrying(limited, stop, std::random_device()()) {}
  kube::RequestMetrics requests;
  kube::RestClient rest;
  kube::FencedClient fenced;
  kube::TokenBucket bucket;
  kube::LimitedClient limited;
  kube::RetryingClient retrying;
};

// Until a signal, or until the lead is lost.
int Serve(const RunOptions& options, const std::string& host, int port, const kube::Endpoint& endpoint,
          Candidate* candidate, const Clock& clock, const Logger& log) {
  const auto leads = [candidate] { return !candidate || candidate->election().Leads(); };
  StopFlag stop;
  Clients clients(endpoint, clock, stop, leads);
  Runtime runtime(clients.retrying, clients.limited, clock, log, stop,
                  {.ns = options.ns,
                   .instance = "trainyard-operator",
                   .workers = 4,
                   .progress_interval_seconds = 10,
                   .poll_seconds = 5,
                   .leads = leads});
  OperatorServer server(runtime, clients.bucket, clients.requests, leads);
  if (!server.Start(host, port))
    return Refuse(Status(Code::kUnavailable, "--listen: " + options.listen + " is in use or not ours"), kExitNetwork);
  runtime.Start();
  log.Info("started", {{"server", net::HostPort(endpoint.host, endpoint.port)},
                       {"namespace", options.ns.empty() ? "all" : options.ns}});
  const auto lost = [candidate] { return candidate && candidate->election().Lost(); };
  while (StopSignals() == 0 && !lost()) std::this_thread::sleep_for(std::chrono::milliseconds(100));
  const bool stopped = !lost();
  runtime.Stop();
  if (!stopped) log.Error("the lease was lost; the process ends, and another operator works");
  if (stopped) log.Info("stopped");
  return stopped ? 0 : kExitNetwork;
}

}  // namespace

int RunOperator(const RunOptions& options) {
  // Dozens of threads that create pods would each leave an arena of their own behind: requests wait for the server, not
  // for the allocator.
  mallopt(M_ARENA_MAX, 2);
  const Logger log(STDERR_FILENO, Logger::Form::kJson, LogLevel::kInfo);
  std::string host;
  int port = 0;
  if (const Status status = ParseListen(options.listen, host, port); !status.ok()) return Refuse(status, kExitInvalid);
  const Result<kube::Endpoint> endpoint =
      options.kubeconfig.empty() ? kube::InClusterEndpoint() : kube::ReadKubeconfig(options.kubeconfig);
  if (!endpoint.ok()) return Refuse(endpoint.status(), kExitInvalid);
  CatchStopSignals();
  const SystemClock clock;
  std::unique_ptr<Candidate> candidate;
  if (options.leader_elect) {
    const Result<std::string> ns = LeaseNamespace(options);
    if (!ns.ok()) return Refuse(ns.status(), kExitInvalid);
    candidate = std::make_unique<Candidate>(
        *endpoint, clock, log,
        kube::LeaderElection::Options{.ns = *ns, .name = options.lease_name, .identity = LeaseIdentity()});
  }
  return Serve(options, host, port, *endpoint, candidate.get(), clock, log);
}

}  // namespace trainyard
