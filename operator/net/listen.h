// A TCP socket that others connect to.
#ifndef TRAINYARD_OPERATOR_NET_LISTEN_H_
#define TRAINYARD_OPERATOR_NET_LISTEN_H_

#include "operator/base/status.h"
#include "operator/net/address.h"

namespace trainyard::net {

// Listens on `address`; IPv6's any ("::") takes IPv4 as well. The caller closes it. kUnavailable: the port is in use
// (no two sockets ever share one), or the address is not this machine's.
Result<int> Listen(const Address& address);

}  // namespace trainyard::net

#endif  // TRAINYARD_OPERATOR_NET_LISTEN_H_
