#include "trainer/launch/route.h"

#include <arpa/inet.h>
#include <netdb.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

#include "trainer/base/error.h"

namespace trainyard {

std::string LocalAddressTowards(const std::string& host) {
  addrinfo hints{}, *found = nullptr;
  hints.ai_family = AF_INET;
  hints.ai_socktype = SOCK_DGRAM;
  if (const int error = getaddrinfo(host.c_str(), "9", &hints, &found); error != 0)
    throw PeerError("MASTER_ADDR: cannot resolve " + host + ": " + gai_strerror(error));
  const int fd = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);
  sockaddr_in local{};
  socklen_t size = sizeof local;
  // Connecting a datagram socket only chooses the route.
  const bool ok = connect(fd, found->ai_addr, found->ai_addrlen) == 0 &&
                  getsockname(fd, reinterpret_cast<sockaddr*>(&local), &size) == 0;
  const int error = errno;
  freeaddrinfo(found);
  close(fd);
  if (!ok) throw PeerError("MASTER_ADDR: no route to " + host + ": " + std::strerror(error));
  char text[INET_ADDRSTRLEN];
  inet_ntop(AF_INET, &local.sin_addr, text, sizeof text);
  return text;
}

}  // namespace trainyard
