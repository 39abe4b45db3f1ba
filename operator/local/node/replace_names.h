// The cluster's names in what a container is given: one machine has no DNS and no service proxy for them.
#ifndef TRAINYARD_OPERATOR_LOCAL_NODE_REPLACE_NAMES_H_
#define TRAINYARD_OPERATOR_LOCAL_NODE_REPLACE_NAMES_H_

#include <functional>
#include <optional>
#include <string>

namespace trainyard::local {

// What a cluster's DNS and its service proxy know: the address of a pod, or nothing yet.
struct Resolver {
  // Of the pod with this host name in this subdomain: <pod>.<job>.<namespace>.svc.
  std::function<std::optional<std::string>(const std::string& pod, const std::string& subdomain, const std::string& ns)>
      host;
  // Of the pod behind the service that has this ClusterIP.
  std::function<std::optional<std::string>(const std::string& address)> service;
};

// Replaces names of hosts (<pod>.<job>.<namespace>.svc, with .cluster.local or without) and addresses of services
// in `value` by addresses of pods. Returns the first that does not resolve; then `value` is of no use. The time that it
// takes grows with the length, whatever stands there; each name is asked for once.
std::string ReplaceNames(std::string& value, const Resolver& resolver);

}  // namespace trainyard::local

#endif  // TRAINYARD_OPERATOR_LOCAL_NODE_REPLACE_NAMES_H_
