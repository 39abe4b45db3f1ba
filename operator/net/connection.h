// A connection to a server: TCP, through a proxy if need be, and TLS inside.
#ifndef TRAINYARD_OPERATOR_NET_CONNECTION_H_
#define TRAINYARD_OPERATOR_NET_CONNECTION_H_

#include <openssl/types.h>

#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include "operator/base/descriptor.h"
#include "operator/base/status.h"
#include "operator/net/proxy.h"
#include "operator/net/tls.h"
#include "operator/net/wait.h"

namespace trainyard::net {

struct Destination {
  std::string host;  // a name or an address, IPv6 without brackets
  int port = 0;
  std::string server_name;     // what the certificate must be for; empty: host
  std::optional<Proxy> proxy;  // asked to CONNECT
};

// For one thread at a time. A half-open one ends by TCP keepalive and TCP_USER_TIMEOUT within half a minute.
// REQUIRES: SIGPIPE is ignored.
class Connection {
 public:
  // `tls` null: none. kUnavailable, saying what the server or its certificate lacks; kDeadline, kStopped.
  static Result<std::unique_ptr<Connection>> Open(const Destination& to, const TlsContext* tls, const Wait& wait);
  ~Connection();

  // At least one byte; 0: the server has ended the stream.
  Result<size_t> Read(char* data, size_t size, const Wait& wait);
  Status Write(std::string_view data, const Wait& wait);
  // Whether nothing came since the last answer: neither an end nor bytes that nobody asked for. Does not wait.
  bool Quiet();

 private:
  struct FreeTls {
    void operator()(SSL* tls) const;
  };
  Connection() = default;
  Status Tunnel(const Destination& to, const Wait& wait);
  Status BeginTls(const std::string& name, const TlsContext& tls, const Wait& wait);
  // Waits for what the library wants; an error when it wants nothing more.
  Status WaitForTls(int result, const Wait& wait);

  Descriptor socket_;
  std::unique_ptr<SSL, FreeTls> tls_;
};

}  // namespace trainyard::net

#endif  // TRAINYARD_OPERATOR_NET_CONNECTION_H_
