#include "trainer/launch/route.h"

#include <netdb.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <memory>
#include <utility>

#include "trainer/base/error.h"

namespace trainyard {

namespace {

using Addresses = std::unique_ptr<addrinfo, void (*)(addrinfo*)>;

// getaddrinfo's error, and none.
std::pair<int, Addresses> Resolve(const std::string& host, int family) {
  addrinfo hints{}, *found = nullptr;
  hints.ai_family = family;
  hints.ai_socktype = SOCK_DGRAM;
  const int error = getaddrinfo(host.c_str(), "9", &hints, &found);
  return {error, Addresses(error == 0 ? found : nullptr, freeaddrinfo)};
}

// Empty, and errno, where nothing leads there.
std::string LocalAddressTo(const addrinfo& there) {
  const int fd = socket(there.ai_family, SOCK_DGRAM | SOCK_CLOEXEC, 0);
  if (fd < 0) return "";
  sockaddr_storage local{};
  socklen_t size = sizeof local;
  // Connecting a datagram socket only chooses the route.
  const bool ok = connect(fd, there.ai_addr, there.ai_addrlen) == 0 &&
                  getsockname(fd, reinterpret_cast<sockaddr*>(&local), &size) == 0;
  const int error = errno;
  close(fd);
  errno = error;
  char text[NI_MAXHOST] = "";
  if (ok) getnameinfo(reinterpret_cast<sockaddr*>(&local), size, text, sizeof text, nullptr, 0, NI_NUMERICHOST);
  return text;
}

}  // namespace

std::string LocalAddressTowards(const std::string& host) {
  auto [error, there] = Resolve(host, AF_INET);
  if (error != 0) {
    auto [no_ipv6, over_ipv6] = Resolve(host, AF_INET6);
    if (no_ipv6 != 0) throw PeerError("MASTER_ADDR: cannot resolve " + host + ": " + gai_strerror(error));
    there = std::move(over_ipv6);
  }
  std::string address = LocalAddressTo(*there);
  if (address.empty()) throw PeerError("MASTER_ADDR: no route to " + host + ": " + std::strerror(errno));
  return address;
}

}  // namespace trainyard
