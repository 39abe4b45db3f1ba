// Addresses of this machine.
#ifndef TRAINYARD_TRAINER_LAUNCH_ROUTE_H_
#define TRAINYARD_TRAINER_LAUNCH_ROUTE_H_

#include <string>

namespace trainyard {

// The local address (IPv4; where `host` has none, IPv6) from which packets to `host` would leave; no packet is sent.
// `far`: other machines need it, so that where this machine's own name means a loopback address (Debian's installer
// writes 127.0.1.1) it is the default route's instead, or else the first interface's. Who says 127.0.0.1, ::1 or
// localhost means it. Throws PeerError when the name cannot be resolved or nothing leads there.
std::string LocalAddressTowards(const std::string& host, bool far);

}  // namespace trainyard

#endif  // TRAINYARD_TRAINER_LAUNCH_ROUTE_H_
