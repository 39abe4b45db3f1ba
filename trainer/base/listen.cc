#include "trainer/base/listen.h"

#include <netdb.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <memory>

#include "trainer/base/error.h"

namespace trainyard {

std::pair<int, int> Listen(std::string_view field, const std::string& address, int port) {
  addrinfo hints{}, *found = nullptr;
  hints.ai_socktype = SOCK_STREAM;
  hints.ai_flags = AI_NUMERICHOST | AI_PASSIVE;
  if (getaddrinfo(address.c_str(), std::to_string(port).c_str(), &hints, &found) != 0)
    throw ConfigError("TRAINYARD_POD_IP: " + address + " is not an IP address");
  const std::unique_ptr<addrinfo, void (*)(addrinfo*)> where(found, freeaddrinfo);
  const int fd = socket(where->ai_family, SOCK_STREAM | SOCK_CLOEXEC, 0), yes = 1;
  // Not SO_REUSEPORT: with it two servers share a port without noticing.
  if (fd >= 0) setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &yes, sizeof yes);
  if (fd < 0 || bind(fd, where->ai_addr, where->ai_addrlen) != 0 || listen(fd, 1024) != 0) {
    const std::string reason = std::strerror(errno);
    if (fd >= 0) close(fd);
    throw PeerError(std::string(field) + ": cannot listen on " + address + ":" + std::to_string(port) + ": " + reason);
  }
  sockaddr_storage bound{};
  socklen_t size = sizeof bound;
  getsockname(fd, reinterpret_cast<sockaddr*>(&bound), &size);
  const bool v6 = bound.ss_family == AF_INET6;
  return {fd, ntohs(v6 ? reinterpret_cast<sockaddr_in6*>(&bound)->sin6_port
                       : reinterpret_cast<sockaddr_in*>(&bound)->sin_port)};
}

}  // namespace trainyard
