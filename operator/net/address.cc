#include "operator/net/address.h"

#include <arpa/inet.h>

#include <cstring>

namespace trainyard::net {

std::optional<Address> ParseAddress(const std::string& text, int port) {
  Address address;
  sockaddr_in four{};
  if (inet_pton(AF_INET, text.c_str(), &four.sin_addr) == 1) {
    four.sin_family = AF_INET;
    four.sin_port = htons(static_cast<uint16_t>(port));
    std::memcpy(&address.storage, &four, sizeof four);
    address.length = sizeof four;
    return address;
  }
  sockaddr_in6 six{};
  if (inet_pton(AF_INET6, text.c_str(), &six.sin6_addr) == 1) {
    six.sin6_family = AF_INET6;
    six.sin6_port = htons(static_cast<uint16_t>(port));
    std::memcpy(&address.storage, &six, sizeof six);
    address.length = sizeof six;
    return address;
  }
  return std::nullopt;
}

std::string HostPort(const std::string& host, int port) {
  const bool six = host.find(':') != std::string::npos;
  return (six ? "[" + host + "]" : host) + ":" + std::to_string(port);
}

}  // namespace trainyard::net
