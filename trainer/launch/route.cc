#include "trainer/launch/route.h"

#include <ifaddrs.h>
#include <net/if.h>
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

// As text; empty where it has none.
std::string Numeric(const sockaddr* address, socklen_t size) {
  char text[NI_MAXHOST] = "";
  getnameinfo(address, size, text, sizeof text, nullptr, 0, NI_NUMERICHOST);
  return text;
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
  return ok ? Numeric(reinterpret_cast<sockaddr*>(&local), size) : "";
}

// Towards the first of them that anything leads to.
std::string LocalAddressToAnyOf(const addrinfo* there) {
  std::string address;
  for (; there && address.empty(); there = there->ai_next) address = LocalAddressTo(*there);
  return address;
}

bool IsLoopback(const std::string& address) { return address.starts_with("127.") || address == "::1"; }

// The address that this machine has for the world: towards an address for documentation (RFC 5737), which the default
// route leads to; else the first of an interface that is up. Empty where there is none.
std::string AddressForOthers() {
  const auto [error, anywhere] = Resolve("192.0.2.1", AF_INET);
  if (std::string address = LocalAddressToAnyOf(anywhere.get()); !address.empty()) return address;
  ifaddrs* all = nullptr;
  if (getifaddrs(&all) != 0) return "";
  const std::unique_ptr<ifaddrs, void (*)(ifaddrs*)> held(all, freeifaddrs);
  for (const ifaddrs* one = all; one; one = one->ifa_next) {
    const bool usable = one->ifa_addr && one->ifa_addr->sa_family == AF_INET && (one->ifa_flags & IFF_UP) != 0 &&
                        (one->ifa_flags & IFF_LOOPBACK) == 0;
    if (usable) return Numeric(one->ifa_addr, sizeof(sockaddr_in));
  }
  return "";
}

}  // namespace

std::string LocalAddressTowards(const std::string& host, bool far) {
  auto [error, there] = Resolve(host, AF_INET);
  if (error != 0) {
    auto [no_ipv6, over_ipv6] = Resolve(host, AF_INET6);
    if (no_ipv6 != 0) throw PeerError("MASTER_ADDR: cannot resolve " + host + ": " + gai_strerror(error));
    there = std::move(over_ipv6);
  }
  std::string address = LocalAddressToAnyOf(there.get());
  if (address.empty()) throw PeerError("MASTER_ADDR: no route to " + host + ": " + std::strerror(errno));
  if (!far || !IsLoopback(address) || IsLoopback(host) || host == "localhost") return address;
  const std::string known = AddressForOthers();
  return known.empty() ? address : known;
}

}  // namespace trainyard
