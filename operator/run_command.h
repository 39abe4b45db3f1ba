// `trainyard-operator run`: the operator against a real API server.
#ifndef TRAINYARD_OPERATOR_RUN_COMMAND_H_
#define TRAINYARD_OPERATOR_RUN_COMMAND_H_

#include <string>

namespace trainyard {

struct RunOptions {
  std::string kubeconfig;  // empty: in a cluster
  std::string ns;          // empty: all namespaces
  std::string listen = "127.0.0.1:8080";
  // Of several operators one works, the others wait with whole caches (kube/leader_election.h).
  bool leader_elect = false;
  std::string lease_name = "trainyard-operator";
  std::string lease_namespace;  // empty: the pod's own
};

// Runs until SIGTERM or SIGINT; jobs and pods stay as they are. Returns the exit code: 0, 64 for a bad
// kubeconfig, address or lease, 69 when the address is in use or the lease was lost.
int RunOperator(const RunOptions& options);

}  // namespace trainyard

#endif  // TRAINYARD_OPERATOR_RUN_COMMAND_H_
