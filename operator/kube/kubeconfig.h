// Where the API is and how to prove who one is: a kubeconfig file, or a pod's service account.
#ifndef TRAINYARD_OPERATOR_KUBE_KUBECONFIG_H_
#define TRAINYARD_OPERATOR_KUBE_KUBECONFIG_H_

#include <string>

#include "operator/base/status.h"

namespace trainyard::kube {

struct Endpoint {
  std::string host;  // a name or an address, IPv6 without brackets
  int port = 443;
  std::string ca_pem;                    // empty: this machine's own authorities
  std::string token;                     // empty: none
  std::string token_file;                // read again every minute; wins over token
  std::string certificate_pem, key_pem;  // empty: none
};

// The current context of a kubeconfig. kNotFound when the file cannot be read; kInvalid, naming the
// key, for what it does not have or we cannot use (exec plugins, insecure-skip-tls-verify, http).
Result<Endpoint> ReadKubeconfig(const std::string& path);
// From KUBERNETES_SERVICE_HOST, KUBERNETES_SERVICE_PORT and the service account's folder.
Result<Endpoint> InClusterEndpoint();
// "https://[::1]:6443" -> host and port.
Status ParseServer(const std::string& url, Endpoint& endpoint);

}  // namespace trainyard::kube

#endif  // TRAINYARD_OPERATOR_KUBE_KUBECONFIG_H_
