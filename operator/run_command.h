// `trainyard-operator run`: the operator against a real API server.
#ifndef TRAINYARD_OPERATOR_RUN_COMMAND_H_
#define TRAINYARD_OPERATOR_RUN_COMMAND_H_

#include <string>

namespace trainyard {

struct RunOptions {
  std::string kubeconfig;  // empty: in a cluster
  std::string ns;          // empty: all namespaces
  std::string listen = "127.0.0.1:8080";
};

// Runs until SIGTERM or SIGINT; jobs and pods stay as they are. Returns the exit code: 0, 64 for a bad
// kubeconfig or address, 69 when the address is in use.
int RunOperator(const RunOptions& options);

}  // namespace trainyard

#endif  // TRAINYARD_OPERATOR_RUN_COMMAND_H_
