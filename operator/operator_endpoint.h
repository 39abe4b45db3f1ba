// Where --listen says: /metrics, /healthz (alive, whatever the API server does) and /readyz (the caches are whole, and
// kept so).
#ifndef TRAINYARD_OPERATOR_OPERATOR_ENDPOINT_H_
#define TRAINYARD_OPERATOR_OPERATOR_ENDPOINT_H_

#include <functional>
#include <memory>
#include <string>

#include "common/http_endpoint.h"
#include "operator/base/stop_flag.h"
#include "operator/runtime.h"

namespace trainyard {

struct ListenPlace {
  std::string host;
  int port = 0;
};

// Of "address:port"; kInvalid: it is no such thing.
Result<ListenPlace> ParseListen(const std::string& listen);

// Serves until it is destroyed. `client_metrics` is what the client says of itself, behind the runtime's metrics; both
// must outlive it. kUnavailable as net::Listen, and where no descriptor or no thread is left.
Result<std::unique_ptr<HttpEndpoint>> ServeOperator(const ListenPlace& place, const StopFlag& stop,
                                                    const Runtime& runtime,
                                                    std::function<std::string()> client_metrics);

}  // namespace trainyard

#endif  // TRAINYARD_OPERATOR_OPERATOR_ENDPOINT_H_
