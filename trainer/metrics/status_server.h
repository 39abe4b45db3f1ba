// The HTTP endpoint of one pod: /status, /metrics, /healthz, /readyz (docs/formats.md).
#ifndef TRAINYARD_TRAINER_METRICS_STATUS_SERVER_H_
#define TRAINYARD_TRAINER_METRICS_STATUS_SERVER_H_

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "trainer/metrics/status.h"

namespace trainyard {

// What is asked of a pod is small and the same for everyone, but anyone may connect: so one thread
// of its own that never waits for a client, at most 128 connections (the oldest makes way for the
// newest), 8 KiB of a request, five seconds for a whole exchange, and one request per connection.
class StatusServer {
 public:
  // `ranks` is asked at every request, from the server's thread; the first is the pod's lowest rank.
  // Port 0 is any free one. Throws PeerError when the port is in use.
  StatusServer(const std::string& address, int port, std::function<std::vector<RankStatus>()> ranks);
  // Ends at once; exchanges that are under way are cut.
  ~StatusServer();
  int port() const { return port_; }

 private:
  class Impl;
  std::unique_ptr<Impl> impl_;
  int port_ = 0;
};

// TRAINYARD_POD_IP, else 127.0.0.1; TRAINYARD_STATUS_PORT, else 0.
std::string StatusAddressFromEnvironment();
int StatusPortFromEnvironment();

}  // namespace trainyard

#endif  // TRAINYARD_TRAINER_METRICS_STATUS_SERVER_H_
