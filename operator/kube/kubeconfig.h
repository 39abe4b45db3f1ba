// Where the API is and how to prove who one is: a kubeconfig file, or a pod's service account.
//
// A field is honoured, harmless (extensions, a context's namespace, which is a default of kubectl's) or refused by
// its name, also when it is of another type: one that is passed over could change who we are or whom we trust.
// Source: kubernetes.io/docs/reference/config-api/kubeconfig.v1.
#ifndef TRAINYARD_OPERATOR_KUBE_KUBECONFIG_H_
#define TRAINYARD_OPERATOR_KUBE_KUBECONFIG_H_

#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "operator/base/status.h"
#include "operator/net/proxy.h"

namespace trainyard::kube {

// A program that says who we are (client.authentication.k8s.io/v1).
struct ExecPlugin {
  std::string command;  // absolute, or a name of PATH
  std::vector<std::string> args;
  std::vector<std::pair<std::string, std::string>> env;
  std::string install_hint;
  std::string cluster_json;  // what KUBERNETES_EXEC_INFO tells of the cluster; empty: nothing
};

// As whom requests are made, if not as ourselves.
struct Impersonation {
  std::string user, uid;
  std::vector<std::string> groups;
};

struct Endpoint {
  std::string host;  // a name or an address, IPv6 without brackets
  int port = 443;
  std::string ca_pem;                    // empty: this machine's own authorities
  std::string token;                     // empty: none
  std::string token_file;                // read again every minute; wins over token
  std::string certificate_pem, key_pem;  // empty: none
  // Where those came from, if from files: read again every minute.
  std::string ca_file, certificate_file, key_file;
  std::string server_name;  // what the server's certificate must be for; empty: host
  std::optional<net::Proxy> proxy;
  std::optional<ExecPlugin> exec;
  Impersonation as;
};

// More than any certificates or token are; a file without an end is read so far.
inline constexpr size_t kMostOfAFile = size_t{4} << 20;

// The current context of a kubeconfig. kNotFound when the file cannot be read; kInvalid, naming the
// field, for what it does not have or we cannot use.
Result<Endpoint> ReadKubeconfig(const std::string& path);
// From KUBERNETES_SERVICE_HOST, KUBERNETES_SERVICE_PORT and the service account's folder.
Result<Endpoint> InClusterEndpoint();
// "https://[::1]:6443" -> host and port.
Status ParseServer(const std::string& url, Endpoint& endpoint);

}  // namespace trainyard::kube

#endif  // TRAINYARD_OPERATOR_KUBE_KUBECONFIG_H_
