#include "operator/run_command.h"

#include <malloc.h>
#include <unistd.h>

#include <cstdio>
#include <functional>
#include <memory>
#include <random>
#include <thread>
#include <vector>

#include "operator/base/exit_codes.h"
#include "operator/base/file.h"
#include "operator/kube/leader_election.h"
#include "operator/kube/limited_client.h"
#include "operator/kube/rest_client.h"
#include "operator/kube/retrying_client.h"
#include "operator/metrics.h"
#include "operator/net/address.h"
#include "operator/operator_endpoint.h"
#include "operator/runtime.h"
#include "operator/stop_signals.h"

namespace trainyard {
namespace {

// Far above what jobs need, and below what would crowd others out: a defect of ours shall not be an attack.
constexpr double kRequestsPerSecond = 1000, kRequestBurst = 2000;
// Well within the ten seconds in which a lease must be renewed.
constexpr double kLeaseRequestSeconds = 4;
// What a kubeconfig's plugin asks may be far away.
constexpr double kPluginSeconds = 30, kFarewellPluginSeconds = 10;

// Steps until it is destroyed; then lets go of the lease. On a connection of its own, outside the bucket: a busy
// operator must not lose its lease in its own queue.
class Candidate {
 public:
  Candidate(const kube::Endpoint& endpoint, const Clock& clock, const Logger& log,
            kube::LeaderElection::Options options)
      : client_(endpoint, clock, stop_,
                {.max_connections = 1, .request_seconds = kLeaseRequestSeconds, .plugin_seconds = kPluginSeconds}),
        farewell_(
            endpoint, clock, never_,
            {.max_connections = 1, .request_seconds = kLeaseRequestSeconds, .plugin_seconds = kFarewellPluginSeconds}),
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

int Refuse(const Status& status, int code) {
  std::fprintf(stderr, "trainyard-operator: %s\n", status.message().c_str());
  return code;
}

// The client's layers, from the one that reconciles use to the one that speaks HTTP.
struct Clients {
  Clients(const kube::Endpoint& endpoint, const Clock& clock, const StopFlag& stop, std::function<bool()> leads)
      : rest(endpoint, clock, stop, {.metrics = &requests, .may_write = std::move(leads)}),
        bucket(kRequestsPerSecond, kRequestBurst, clock),
        limited(rest, bucket, stop),
        retrying(limited, stop, std::random_device()()) {}
  kube::RequestMetrics requests;
  kube::RestClient rest;
  kube::TokenBucket bucket;
  kube::LimitedClient limited;
  kube::RetryingClient retrying;
};

// Until a signal, or until the lead is lost.
int Serve(const RunOptions& options, const ListenPlace& place, const kube::Endpoint& endpoint, Candidate* candidate,
          const Clock& clock, const Logger& log) {
  const auto leads = [candidate] { return !candidate || candidate->election().Leads(); };
  StopFlag stop;
  Clients clients(endpoint, clock, stop, leads);
  Runtime runtime(clients.retrying, clients.limited, clock, log, stop,
                  {.ns = options.ns,
                   .instance = "trainyard-operator",
                   .workers = 16,
                   .progress_interval_seconds = 10,
                   .poll_seconds = 5,
                   .leads = leads});
  const auto client_metrics = [&] { return ClientMetrics(clients.bucket, clients.requests, leads()); };
  const auto served = ServeOperator(place, stop, runtime, client_metrics);
  if (!served.ok()) return Refuse(served.status(), kExitNetwork);
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
  // Each text of more than a kilobyte would first put all small blocks together that were freed since the last one.
  mallopt(M_MXFAST, 0);
  const Logger log(STDERR_FILENO, Logger::Form::kJson, LogLevel::kInfo);
  const Result<ListenPlace> place = ParseListen(options.listen);
  if (!place.ok()) return Refuse(place.status(), kExitInvalid);
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
  return Serve(options, *place, *endpoint, candidate.get(), clock, log);
}

}  // namespace trainyard
