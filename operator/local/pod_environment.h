// The environment of a container on one machine.
#ifndef TRAINYARD_OPERATOR_LOCAL_POD_ENVIRONMENT_H_
#define TRAINYARD_OPERATOR_LOCAL_POD_ENVIRONMENT_H_

#include <functional>
#include <map>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "operator/base/status.h"
#include "operator/local/container_view.h"

namespace trainyard::local {

using Json = nlohmann::json;

// What a cluster's DNS and its service proxy know: the address of a pod, or nothing yet.
struct Resolver {
  // Of the pod with this host name in this subdomain: <pod>.<job>.<namespace>.svc.
  std::function<std::optional<std::string>(const std::string& pod, const std::string& subdomain, const std::string& ns)>
      host;
  // Of the pod behind the service that has this ClusterIP.
  std::function<std::optional<std::string>(const std::string& address)> service;
};

struct ContainerEnvironment {
  std::map<std::string, std::string> variables;
  std::string waiting_for;  // a name, or a service's address, behind which there is no pod yet; then it is held
};

// The variables of `container`, on top of what this process has (without the names of the worker
// contract): values, field references, $(NAME). Names of the job's service, and the addresses of services, are replaced
// by those of pods.
// kInvalid for a source that one machine does not have (configMapKeyRef, secretKeyRef).
Result<ContainerEnvironment> MakeEnvironment(const Json& pod, const Json& container, const ContainerView& view,
                                             const Resolver& resolver);

// `text` with $(NAME) replaced by variables; $$(NAME) and unknown names stay, as in Kubernetes.
std::string Expand(const std::string& text, const std::map<std::string, std::string>& variables);

// What the pod is called as a host: its $HOSTNAME.
std::string HostName(const Json& pod);

}  // namespace trainyard::local

#endif  // TRAINYARD_OPERATOR_LOCAL_POD_ENVIRONMENT_H_
