#include "operator/net/listen.h"

#include <unistd.h>

#include <cerrno>
#include <cstring>

namespace trainyard::net {

Result<int> Listen(const Address& address) {
  const int listener = socket(address.family(), SOCK_STREAM | SOCK_CLOEXEC, 0), on = 1, off = 0;
  // Not SO_REUSEPORT: with it two servers share a port without noticing.
  if (listener >= 0) setsockopt(listener, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
  if (listener >= 0 && address.family() == AF_INET6) setsockopt(listener, IPPROTO_IPV6, IPV6_V6ONLY, &off, sizeof off);
  if (listener >= 0 && bind(listener, address.get(), address.length) == 0 && listen(listener, 1024) == 0)
    return listener;
  const Status status(Code::kUnavailable, std::string("listen: ") + std::strerror(errno));
  if (listener >= 0) close(listener);
  return status;
}

}  // namespace trainyard::net
