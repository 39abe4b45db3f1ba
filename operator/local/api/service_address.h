// Services as an API server keeps them: what it fills in, the addresses that it gives, and what may not change.
// Source: kubernetes.io/docs/concepts/services-networking/service, and what a kube-apiserver answers
// (tests/conformance).
#ifndef TRAINYARD_OPERATOR_LOCAL_API_SERVICE_ADDRESS_H_
#define TRAINYARD_OPERATOR_LOCAL_API_SERVICE_ADDRESS_H_

#include <set>
#include <string>
#include <vector>

#include "operator/local/api/api_result.h"

namespace trainyard::local {

// Where its addresses come from: 127.255.0.0/16, in which no pod of an agent is. Nothing listens there; an agent puts a
// pod's address in the place of a service's.
inline constexpr char kServiceRange[] = "127.255.0.0/16";
inline constexpr char kServicePrefix[] = "127.255.";

// Fills in what is absent. `old`: what is replaced; null: the service is new. The address is not among it.
void DefaultService(Json& service, const Json* old);
// What is wrong with it. `old` as above. REQUIRES: DefaultService.
std::vector<api::Cause> CheckService(const Json& service, const Json* old);

// Gives a new service its address: the one that it asks for, or the first that is free. `taken`: those of all others.
// What is wrong with the one that it asks for.
std::vector<api::Cause> AssignAddress(Json& service, const std::set<std::string>& taken);

// The address of `service`; empty: it has none.
std::string AddressOf(const Json& service);

}  // namespace trainyard::local

#endif  // TRAINYARD_OPERATOR_LOCAL_API_SERVICE_ADDRESS_H_
