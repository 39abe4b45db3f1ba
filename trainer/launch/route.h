// Addresses of this machine.
#ifndef TRAINYARD_TRAINER_LAUNCH_ROUTE_H_
#define TRAINYARD_TRAINER_LAUNCH_ROUTE_H_

#include <string>

namespace trainyard {

// The local address (IPv4; where `host` has none, IPv6) from which packets to `host` would leave; no packet is sent.
// Throws PeerError when the name cannot be resolved or nothing leads there.
std::string LocalAddressTowards(const std::string& host);

}  // namespace trainyard

#endif  // TRAINYARD_TRAINER_LAUNCH_ROUTE_H_
