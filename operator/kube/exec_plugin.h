// Credentials from a program of the user's (aws eks get-token, gke-gcloud-auth-plugin, ...).
// Source: kubernetes.io/docs/reference/access-authn-authz/authentication, "client-go credential plugins".
#ifndef TRAINYARD_OPERATOR_KUBE_EXEC_PLUGIN_H_
#define TRAINYARD_OPERATOR_KUBE_EXEC_PLUGIN_H_

#include <optional>
#include <string>

#include "operator/base/clock.h"
#include "operator/kube/kubeconfig.h"
#include "operator/net/wait.h"

namespace trainyard::kube {

struct ExecCredential {
  std::string token, certificate_pem, key_pem;  // a token, or a certificate and its key
  std::optional<Time> expires;                  // nothing: when the server refuses it
};

// Runs the program and reads what it says. Its stderr is ours, its stdin empty; it and what it started are killed
// at the deadline, by the stop, or once it has written more than a MiB. kUnavailable, naming the command, its exit code
// and its hint; kDeadline, kStopped.
Result<ExecCredential> RunExecPlugin(const ExecPlugin& plugin, const net::Wait& wait);

// What stands in an ExecCredential. kInvalid for anything else.
Result<ExecCredential> ParseExecCredential(const std::string& text);

}  // namespace trainyard::kube

#endif  // TRAINYARD_OPERATOR_KUBE_EXEC_PLUGIN_H_
