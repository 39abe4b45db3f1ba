// Listening TCP sockets.
#ifndef TRAINYARD_TRAINER_BASE_LISTEN_H_
#define TRAINYARD_TRAINER_BASE_LISTEN_H_

#include <string>
#include <string_view>
#include <utility>

namespace trainyard {

// A listening socket on the numeric address (IPv4 or IPv6), and its port; port 0 chooses a free one.
// The caller closes it. No two sockets ever share a port. Throws PeerError (69: the port is in use),
// its message beginning with `field`, and ConfigError when TRAINYARD_POD_IP is no address.
std::pair<int, int> Listen(std::string_view field, const std::string& address, int port);

}  // namespace trainyard

#endif  // TRAINYARD_TRAINER_BASE_LISTEN_H_
