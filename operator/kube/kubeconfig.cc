#include "operator/kube/kubeconfig.h"

#include <openssl/evp.h>

#include <charconv>
#include <cstdlib>
#include <vector>

#include "common/yaml.h"
#include "operator/base/file.h"
#include "operator/base/json_access.h"

namespace trainyard::kube {
namespace {

using Json = nlohmann::json;

constexpr char kServiceAccount[] = "/var/run/secrets/kubernetes.io/serviceaccount/";

Result<std::string> Base64(const std::string& text) {
  std::vector<unsigned char> out(text.size() + 4);
  const int length =
      EVP_DecodeBlock(out.data(), reinterpret_cast<const unsigned char*>(text.data()), static_cast<int>(text.size()));
  if (length < 0) return Status(Code::kInvalid, "is no base64");
  const size_t padding = text.ends_with("==") ? 2 : text.ends_with("=") ? 1 : 0;
  return std::string(reinterpret_cast<char*>(out.data()), static_cast<size_t>(length) - padding);
}

// `key`-data, or the file that `key` names; empty when neither is set.
Result<std::string> DataOrFile(const Json& object, const std::string& key, const std::string& folder) {
  if (const std::string data = json::Text(object, (key + "-data").c_str()); !data.empty()) {
    Result<std::string> text = Base64(data);
    return text.ok() ? text : text.status().With(key + "-data");
  }
  const std::string path = json::Text(object, key.c_str());
  if (path.empty()) return std::string();
  return ReadWhole(path.starts_with("/") ? path : folder + path);
}

// The object `inner` of the item that has the name; null when there is none.
const Json& Named(const Json& list, const std::string& name, const char* inner) {
  static const Json none;
  for (const Json& item : list) {
    if (json::Text(item, "name") == name) return json::Field(item, inner);
  }
  return none;
}

Status ReadUser(const Json& user, const std::string& folder, Endpoint& endpoint) {
  if (!json::Field(user, "exec").is_null() || !json::Field(user, "auth-provider").is_null())
    return Status(Code::kInvalid,
                  "user.exec: plugins are not supported yet; allowed: token, tokenFile, client certificates");
  endpoint.token = json::Text(user, "token");
  endpoint.token_file = json::Text(user, "tokenFile");
  Result<std::string> certificate = DataOrFile(user, "client-certificate", folder);
  if (!certificate.ok()) return certificate.status();
  Result<std::string> key = DataOrFile(user, "client-key", folder);
  if (!key.ok()) return key.status();
  endpoint.certificate_pem = *certificate;
  endpoint.key_pem = *key;
  return Status::Ok();
}

Result<Endpoint> Read(const Json& config, const std::string& folder) {
  const std::string name = json::Text(config, "current-context");
  if (name.empty()) return Status(Code::kInvalid, "current-context: missing");
  const Json& context = Named(json::List(config, "contexts"), name, "context");
  if (context.is_null()) return Status(Code::kInvalid, "current-context: there is no context " + name);
  const std::string cluster_name = json::Text(context, "cluster");
  const Json& cluster = Named(json::List(config, "clusters"), cluster_name, "cluster");
  const std::string server = json::Text(cluster, "server");
  if (server.empty()) return Status(Code::kInvalid, "cluster " + cluster_name + ": has no server");
  if (json::Flag(cluster, "insecure-skip-tls-verify"))
    return Status(Code::kInvalid, "insecure-skip-tls-verify: true is not allowed; give certificate-authority");
  Endpoint endpoint;
  if (Status status = ParseServer(server, endpoint); !status.ok()) return status;
  Result<std::string> ca = DataOrFile(cluster, "certificate-authority", folder);
  if (!ca.ok()) return ca.status();
  endpoint.ca_pem = *ca;
  if (!ca->empty() && ca->find("-----BEGIN CERTIFICATE-----") == std::string::npos)
    return Status(Code::kInvalid, "certificate-authority: holds no certificate in PEM form");
  const Json& user = Named(json::List(config, "users"), json::Text(context, "user"), "user");
  if (Status status = ReadUser(user, folder, endpoint); !status.ok()) return status;
  return endpoint;
}

}  // namespace

Status ParseServer(const std::string& url, Endpoint& endpoint) {
  const std::string scheme = "https://";
  if (!url.starts_with(scheme))
    return Status(Code::kInvalid, "server: " + url + " is not allowed; allowed: https://host:port");
  std::string rest = url.substr(scheme.size());
  if (const size_t slash = rest.find('/'); slash != std::string::npos) {
    if (slash + 1 != rest.size()) return Status(Code::kInvalid, "server: " + url + ": a path is not supported");
    rest.resize(slash);
  }
  std::string port = "443";
  if (rest.starts_with("[")) {
    const size_t close = rest.find(']');
    if (close == std::string::npos) return Status(Code::kInvalid, "server: " + url + ": the bracket is not closed");
    if (rest.size() > close + 1) port = rest.substr(close + 2);
    endpoint.host = rest.substr(1, close - 1);
  } else {
    const size_t colon = rest.rfind(':');
    if (colon != std::string::npos) port = rest.substr(colon + 1);
    endpoint.host = rest.substr(0, colon);
  }
  const auto [end, error] = std::from_chars(port.data(), port.data() + port.size(), endpoint.port);
  if (error != std::errc() || end != port.data() + port.size() || endpoint.port < 1 || endpoint.port > 65535 ||
      endpoint.host.empty()) {
    return Status(Code::kInvalid, "server: " + url + " is not allowed; allowed: https://host:port");
  }
  return Status::Ok();
}

Result<Endpoint> ReadKubeconfig(const std::string& path) {
  const Result<std::string> text = ReadWhole(path);
  if (!text.ok()) return text.status();
  const auto read = ReadYaml(*text);
  if (const auto* error = std::get_if<YamlError>(&read)) return Status(Code::kInvalid, error->In(path));
  Result<Endpoint> endpoint = Read(std::get<nlohmann::json>(read), path.substr(0, path.rfind('/') + 1));
  return endpoint.ok() ? endpoint : endpoint.status().With(path);
}

Result<Endpoint> InClusterEndpoint() {
  const char* host = std::getenv("KUBERNETES_SERVICE_HOST");
  const char* port = std::getenv("KUBERNETES_SERVICE_PORT");
  if (!host || !port)
    return Status(Code::kNotFound, "KUBERNETES_SERVICE_HOST: not set, so this is no pod; give --kubeconfig");
  Endpoint endpoint{.host = host,
                    .port = std::atoi(port),
                    .ca_pem = "",
                    .token = "",
                    .token_file = std::string(kServiceAccount) + "token",
                    .certificate_pem = "",
                    .key_pem = ""};
  Result<std::string> ca = ReadWhole(std::string(kServiceAccount) + "ca.crt");
  if (!ca.ok()) return ca.status();
  endpoint.ca_pem = *ca;
  return endpoint;
}

}  // namespace trainyard::kube
