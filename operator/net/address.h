// Where a TCP connection goes.
#ifndef TRAINYARD_OPERATOR_NET_ADDRESS_H_
#define TRAINYARD_OPERATOR_NET_ADDRESS_H_

#include <netinet/in.h>
#include <sys/socket.h>

#include <optional>
#include <string>

namespace trainyard::net {

struct Address {
  sockaddr_storage storage{};
  socklen_t length = 0;

  int family() const { return storage.ss_family; }
  const sockaddr* get() const { return reinterpret_cast<const sockaddr*>(&storage); }
};

// "127.0.0.1" or "fd00::1" (without brackets), nothing else: no name is looked up.
std::optional<Address> ParseAddress(const std::string& text, int port);

// "10.0.0.1:443", "[fd00::1]:443", "api.example:443".
std::string HostPort(const std::string& host, int port);

}  // namespace trainyard::net

#endif  // TRAINYARD_OPERATOR_NET_ADDRESS_H_
