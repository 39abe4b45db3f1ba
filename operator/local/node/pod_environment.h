// The environment of a container on one machine.
#ifndef TRAINYARD_OPERATOR_LOCAL_NODE_POD_ENVIRONMENT_H_
#define TRAINYARD_OPERATOR_LOCAL_NODE_POD_ENVIRONMENT_H_

#include <map>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "operator/base/status.h"
#include "operator/local/node/container_view.h"
#include "operator/local/node/replace_names.h"

namespace trainyard::local {

using Json = nlohmann::json;

using Variables = std::map<std::string, std::string, std::less<>>;  // by name

struct ContainerEnvironment {
  Variables variables;
  std::string waiting_for;  // a name, or a service's address, behind which there is no pod yet; then it is held
};

// The variables of `container`, on top of what this process has (without the names of the worker
// contract): values, field references, $(NAME). Names of the job's service, and the addresses of services, are replaced
// by those of pods.
// kInvalid for a source that one machine does not have (configMapKeyRef, secretKeyRef), and for a value longer than
// kMaxWord.
Result<ContainerEnvironment> MakeEnvironment(const Json& pod, const Json& container, const ContainerView& view,
                                             const Resolver& resolver);

// No program can be given a longer word or variable (execve(2), MAX_ARG_STRLEN).
inline constexpr size_t kMaxWord = 128 << 10;

// `text` with $(NAME) replaced by variables; $$(NAME) and unknown names stay, as in Kubernetes. Ends soon behind
// kMaxWord: variables that hold variables, twice each, would have no end.
std::string Expand(const std::string& text, const Variables& variables);

// What the pod is called as a host: its $HOSTNAME.
std::string HostName(const Json& pod);

}  // namespace trainyard::local

#endif  // TRAINYARD_OPERATOR_LOCAL_NODE_POD_ENVIRONMENT_H_
