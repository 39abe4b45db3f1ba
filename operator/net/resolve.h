// The addresses of a host.
#ifndef TRAINYARD_OPERATOR_NET_RESOLVE_H_
#define TRAINYARD_OPERATOR_NET_RESOLVE_H_

#include <string>
#include <vector>

#include "operator/base/status.h"
#include "operator/net/address.h"
#include "operator/net/wait.h"

namespace trainyard::net {

// At least one; a literal is its own. kUnavailable, kDeadline, kStopped. The C library's look-up cannot be
// ended: one that is given up goes on in a thread of its own, until its own deadline, and is then dropped.
Result<std::vector<Address>> Resolve(const std::string& host, int port, const Wait& wait);

}  // namespace trainyard::net

#endif  // TRAINYARD_OPERATOR_NET_RESOLVE_H_
