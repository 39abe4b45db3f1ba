// Whether a connection goes through a proxy, and through which.
// Source: the conventions of curl and of Go's net/http for HTTPS_PROXY and NO_PROXY.
#ifndef TRAINYARD_OPERATOR_NET_PROXY_H_
#define TRAINYARD_OPERATOR_NET_PROXY_H_

#include <functional>
#include <optional>
#include <string>

#include "operator/base/status.h"

namespace trainyard::net {

struct Proxy {
  std::string host;
  int port = 80;
  std::string authorization;  // of the field Proxy-Authorization; empty: none
};

// "http://user:password@proxy.example:3128"; the scheme may be missing. kInvalid for any other scheme.
Result<Proxy> ParseProxy(const std::string& url);

// What HTTPS_PROXY (or https_proxy) says for host:port; nothing when it is unset, or when NO_PROXY (or
// no_proxy) excepts the host: "*", a name (and what ends with ".name"), ".name", an address, a network
// ("10.0.0.0/8"), each with ":port" or without. This machine itself is always excepted.
// `get`: reads a variable; null when it is unset.
Result<std::optional<Proxy>> ProxyOfEnvironment(const std::string& host, int port,
                                                const std::function<const char*(const char*)>& get);

}  // namespace trainyard::net

#endif  // TRAINYARD_OPERATOR_NET_PROXY_H_
