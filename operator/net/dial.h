// A TCP connection to one of a host's addresses.
#ifndef TRAINYARD_OPERATOR_NET_DIAL_H_
#define TRAINYARD_OPERATOR_NET_DIAL_H_

#include <vector>

#include "operator/base/descriptor.h"
#include "operator/base/status.h"
#include "operator/net/address.h"
#include "operator/net/wait.h"

namespace trainyard::net {

// The first of `addresses` (at least one) that answers, asked one after the other: each has an equal share of what is
// left until the deadline, and no more than five seconds, so that a dead one leaves time for the next. The last one's
// kUnavailable or kDeadline; kStopped; `out` is not connected then.
Status Dial(const std::vector<Address>& addresses, const Wait& wait, Descriptor& out);

}  // namespace trainyard::net

#endif  // TRAINYARD_OPERATOR_NET_DIAL_H_
