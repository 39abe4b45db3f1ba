// The HTTP endpoint of one pod: /status, /metrics, /healthz, /readyz (docs/formats.md).
#ifndef TRAINYARD_TRAINER_METRICS_STATUS_SERVER_H_
#define TRAINYARD_TRAINER_METRICS_STATUS_SERVER_H_

#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "common/http_endpoint.h"
#include "trainer/metrics/status.h"

namespace trainyard {

class StatusServer {
 public:
  // The socket and its port; port 0 is any free one. Throws PeerError when the port is in use.
  static std::pair<int, int> ListenOn(const std::string& address, int port);
  // `listening`: from ListenOn; it is closed at the end. `ranks` is asked at every request, from the server's thread;
  // the first is the pod's lowest rank.
  StatusServer(std::pair<int, int> listening, std::function<std::vector<RankStatus>()> ranks);
  int port() const { return port_; }

 private:
  int port_;
  HttpEndpoint endpoint_;
};

// TRAINYARD_POD_IP, else 127.0.0.1; TRAINYARD_STATUS_PORT, else 0.
std::string StatusAddressFromEnvironment();
int StatusPortFromEnvironment();

}  // namespace trainyard

#endif  // TRAINYARD_TRAINER_METRICS_STATUS_SERVER_H_
