#include "operator/kube/kubeconfig.h"

#include <algorithm>
#include <charconv>
#include <cstdlib>
#include <vector>

#include "common/yaml.h"
#include "operator/base/file.h"
#include "operator/base/json_access.h"
#include "operator/net/base64.h"
#include "operator/net/tls.h"

namespace trainyard::kube {
namespace {

using Json = nlohmann::json;

constexpr char kServiceAccount[] = "/var/run/secrets/kubernetes.io/serviceaccount/";

Status ReadProxyOfEnvironment(Endpoint& endpoint) {
  const auto proxy =
      net::ProxyOfEnvironment(endpoint.host, endpoint.port, [](const char* name) { return std::getenv(name); });
  if (!proxy.ok()) return proxy.status();
  endpoint.proxy = *proxy;
  return Status::Ok();
}

std::string Absolute(const std::string& path, const std::string& folder) {
  return path.empty() || path.starts_with("/") ? path : folder + path;
}

// `key`-data, or the contents of the file that `key` names, which is then in `file`; empty when neither is set.
Result<std::string> DataOrFile(const Json& object, const std::string& key, const std::string& folder,
                               std::string& file) {
  if (const std::string data = json::Text(object, (key + "-data").c_str()); !data.empty()) {
    Result<std::string> text = net::DecodeBase64(data);
    return text.ok() ? text : text.status().With(key + "-data");
  }
  file = Absolute(json::Text(object, key.c_str()), folder);
  if (file.empty()) return std::string();
  Result<std::string> text = ReadRegular(file, kMostOfAFile);
  return text.ok() ? text : text.status().With(key);
}

// What a field may hold. kOther: whoever reads it looks for itself.
enum class Kind { kText, kFlag, kTexts, kOther };
using Known = std::vector<std::pair<std::string, Kind>>;

// A credential must not come into a log: no value of a user's is named, and no list or object, which may hold one.
Status WrongType(const std::string& where, const Json& value, const std::string& wanted) {
  const bool secret = value.is_structured() || where.starts_with("user");
  const std::string what = secret ? std::string("a value of type ") + value.type_name()
                                  : value.dump(-1, ' ', false, Json::error_handler_t::replace);
  const bool quotes = wanted == "text" && value.is_primitive();
  return Status(Code::kInvalid, where + ": " + what + " is no " + wanted + (quotes ? "; put it in quotes" : ""));
}

Status CheckKind(const std::string& where, const Json& value, Kind kind) {
  if (kind == Kind::kText && !value.is_string()) return WrongType(where, value, "text");
  if (kind == Kind::kFlag && !value.is_boolean()) return WrongType(where, value, "true or false");
  if (kind != Kind::kTexts) return Status::Ok();
  if (!value.is_array()) return WrongType(where, value, "list");
  for (const Json& item : value) {
    if (!item.is_string()) return WrongType(where, item, "text");
  }
  return Status::Ok();
}

// kInvalid, naming it, for a field that is in `known` and of another type, which would read as none, and for one that
// is not there and has a value.
Status OnlyKnown(const Json& object, const std::string& where, const Known& known) {
  if (!object.is_object() && !object.is_null()) return WrongType(where, object, "object");
  for (const auto& [key, value] : object.items()) {
    const auto field =
        std::find_if(known.begin(), known.end(), [&name = key](const auto& each) { return each.first == name; });
    if (value.is_null()) continue;
    if (field != known.end()) {
      if (Status status = CheckKind(where + "." + key, value, field->second); !status.ok()) return status;
      continue;
    }
    const bool no_text = value.is_string() && value.get_ref<const std::string&>().empty();
    if (no_text || value == false || (value.is_structured() && value.empty())) continue;
    std::string allowed;
    for (const auto& [name, kind] : known) allowed += (allowed.empty() ? "" : ", ") + name;
    return Status(Code::kInvalid, where + "." + key + ": is not supported; allowed: " + allowed);
  }
  return Status::Ok();
}

// The item of config's `list` that has the name; null when there is none, or no name.
Result<Json> Named(const Json& config, const std::string& list, const std::string& name) {
  const Json& items = json::Field(config, list.c_str());
  if (!items.is_null() && !items.is_array()) return WrongType(list, items, "list");
  Json found;
  for (size_t i = 0; i < items.size(); ++i) {
    const std::string where = list + "[" + std::to_string(i) + "]";
    if (!items[i].is_object()) return WrongType(where, items[i], "object");
    const Json& own = json::Field(items[i], "name");
    // One that reads as no text would be found by whoever has no name either.
    if (!own.is_null() && !own.is_string()) return WrongType(where + ".name", own, "text");
    if (found.is_null() && !name.empty() && own == name) found = items[i];
  }
  return found;
}

Status ReadExec(const Json& exec, const std::string& folder, ExecPlugin& plugin) {
  const Known known = {{"apiVersion", Kind::kText},     {"command", Kind::kText},
                       {"args", Kind::kTexts},          {"env", Kind::kOther},
                       {"installHint", Kind::kText},    {"provideClusterInfo", Kind::kFlag},
                       {"interactiveMode", Kind::kText}};
  if (Status status = OnlyKnown(exec, "user.exec", known); !status.ok()) return status;
  const std::string version = json::Text(exec, "apiVersion"), wanted = "client.authentication.k8s.io/v1";
  if (version != wanted)
    return Status(Code::kInvalid, "user.exec.apiVersion: " + version + " is not supported; allowed: " + wanted +
                                      ", which most plugins speak when asked to");
  if (json::Text(exec, "interactiveMode") == "Always")
    return Status(Code::kInvalid, "user.exec.interactiveMode: Always: there is nobody to ask here");
  const std::string command = json::Text(exec, "command");
  if (command.empty()) return Status(Code::kInvalid, "user.exec.command: missing");
  plugin.command = command.find('/') == std::string::npos ? command : Absolute(command, folder);
  plugin.install_hint = json::Text(exec, "installHint");
  for (const Json& arg : json::List(exec, "args")) plugin.args.push_back(arg.get<std::string>());
  if (const Json& env = json::Field(exec, "env"); !env.is_null() && !env.is_array())
    return WrongType("user.exec.env", env, "list");
  for (const Json& variable : json::List(exec, "env")) {
    const Json &name = json::Field(variable, "name"), &value = json::Field(variable, "value");
    if (!name.is_string() || !value.is_string())
      return Status(Code::kInvalid,
                    "user.exec.env[" + std::to_string(plugin.env.size()) + "]: is no name and value, both texts");
    plugin.env.emplace_back(name.get<std::string>(), value.get<std::string>());
  }
  return Status::Ok();
}

Status ReadUser(const Json& user, const std::string& folder, Endpoint& endpoint) {
  const Known known = {{"token", Kind::kText},
                       {"tokenFile", Kind::kText},
                       {"client-certificate", Kind::kText},
                       {"client-certificate-data", Kind::kText},
                       {"client-key", Kind::kText},
                       {"client-key-data", Kind::kText},
                       {"exec", Kind::kOther},
                       {"as", Kind::kText},
                       {"as-uid", Kind::kText},
                       {"as-groups", Kind::kTexts},
                       {"extensions", Kind::kOther}};
  if (Status status = OnlyKnown(user, "user", known); !status.ok()) return status;
  endpoint.token = json::Text(user, "token");
  endpoint.token_file = Absolute(json::Text(user, "tokenFile"), folder);
  endpoint.as = {.user = json::Text(user, "as"), .uid = json::Text(user, "as-uid"), .groups = {}};
  for (const Json& group : json::List(user, "as-groups")) endpoint.as.groups.push_back(group.get<std::string>());
  if (endpoint.as.user.empty() && !(endpoint.as.uid.empty() && endpoint.as.groups.empty()))
    return Status(Code::kInvalid, "user.as: missing, beside as-uid or as-groups");
  Result<std::string> certificate = DataOrFile(user, "client-certificate", folder, endpoint.certificate_file);
  if (!certificate.ok()) return certificate.status().With("user");
  Result<std::string> key = DataOrFile(user, "client-key", folder, endpoint.key_file);
  if (!key.ok()) return key.status().With("user");
  endpoint.certificate_pem = *certificate;
  endpoint.key_pem = *key;
  if (certificate->empty() != key->empty())
    return Status(Code::kInvalid, std::string("user.") + (key->empty() ? "client-key" : "client-certificate") +
                                      ": missing, beside the other of the two");
  const Json& exec = json::Field(user, "exec");
  if (exec.is_null()) return Status::Ok();
  return ReadExec(exec, folder, endpoint.exec.emplace());
}

// What a plugin is told of the cluster, in its own spelling.
std::string ClusterInfo(const Json& cluster, const std::string& ca_pem) {
  Json info = {{"server", json::Text(cluster, "server")}};
  if (!ca_pem.empty()) info["certificate-authority-data"] = net::EncodeBase64(ca_pem);
  for (const char* key : {"tls-server-name", "proxy-url"}) {
    if (const std::string value = json::Text(cluster, key); !value.empty()) info[key] = value;
  }
  return info.dump();
}

Status ReadCluster(const Json& cluster, const std::string& folder, Endpoint& endpoint) {
  const Known known = {{"server", Kind::kText},
                       {"certificate-authority", Kind::kText},
                       {"certificate-authority-data", Kind::kText},
                       {"tls-server-name", Kind::kText},
                       {"proxy-url", Kind::kText},
                       {"disable-compression", Kind::kFlag},
                       {"extensions", Kind::kOther}};
  if (json::Flag(cluster, "insecure-skip-tls-verify"))
    return Status(Code::kInvalid, "cluster.insecure-skip-tls-verify: true is not allowed; give certificate-authority");
  if (Status status = OnlyKnown(cluster, "cluster", known); !status.ok()) return status;
  if (Status status = ParseServer(json::Text(cluster, "server"), endpoint); !status.ok()) return status;
  Result<std::string> ca = DataOrFile(cluster, "certificate-authority", folder, endpoint.ca_file);
  if (!ca.ok()) return ca.status().With("cluster");
  endpoint.ca_pem = *ca;
  endpoint.server_name = json::Text(cluster, "tls-server-name");
  if (const std::string url = json::Text(cluster, "proxy-url"); !url.empty()) {
    Result<net::Proxy> proxy = net::ParseProxy(url);
    if (!proxy.ok()) return proxy.status().With("cluster.proxy-url");
    endpoint.proxy = *proxy;
    return Status::Ok();
  }
  return ReadProxyOfEnvironment(endpoint);
}

// A damaged key is found now, by its name, and not at the first request.
Status CheckTls(const Endpoint& endpoint) {
  net::TlsPart wrong = net::TlsPart::kNone;
  const auto made = net::TlsContext::Make({endpoint.ca_pem, endpoint.certificate_pem, endpoint.key_pem}, wrong);
  if (made.ok()) return Status::Ok();
  const auto name = [](const std::string& field, const std::string& file) {
    return file.empty() ? field + "-data" : field + ": " + file;
  };
  if (wrong == net::TlsPart::kAuthorities)
    return made.status().With(name("cluster.certificate-authority", endpoint.ca_file));
  if (wrong == net::TlsPart::kChain)
    return made.status().With(name("user.client-certificate", endpoint.certificate_file));
  return made.status().With(name("user.client-key", endpoint.key_file));
}

// The cluster and the user of the current context; `user` is null where it has none.
Status FindCurrent(const Json& config, Json& cluster, Json& user) {
  const Json& current = json::Field(config, "current-context");
  if (!current.is_null() && !current.is_string()) return WrongType("current-context", current, "text");
  const std::string name = json::Text(config, "current-context"), where = "context " + name;
  if (name.empty()) return Status(Code::kInvalid, "current-context: missing");
  const Result<Json> entry = Named(config, "contexts", name);
  if (!entry.ok()) return entry.status();
  const Json& context = json::Field(*entry, "context");
  if (context.is_null()) return Status(Code::kInvalid, "current-context: there is no context " + name);
  const Known known = {
      {"cluster", Kind::kText}, {"user", Kind::kText}, {"namespace", Kind::kText}, {"extensions", Kind::kOther}};
  if (Status status = OnlyKnown(context, where, known); !status.ok()) return status;
  const std::string cluster_name = json::Text(context, "cluster"), user_name = json::Text(context, "user");
  const Result<Json> clusters = Named(config, "clusters", cluster_name), users = Named(config, "users", user_name);
  if (!clusters.ok()) return clusters.status();
  if (!users.ok()) return users.status();
  cluster = json::Field(*clusters, "cluster");
  if (cluster.is_null())
    return Status(Code::kInvalid, where + ": cluster: there is none named \"" + cluster_name + "\"");
  if (users->is_null() && !user_name.empty())
    return Status(Code::kInvalid, where + ": user: there is none named \"" + user_name + "\"");
  user = json::Field(*users, "user");
  return Status::Ok();
}

Result<Endpoint> Read(const Json& config, const std::string& folder) {
  Json cluster, user;
  if (Status status = FindCurrent(config, cluster, user); !status.ok()) return status;
  Endpoint endpoint;
  if (Status status = ReadCluster(cluster, folder, endpoint); !status.ok()) return status;
  if (Status status = ReadUser(user, folder, endpoint); !status.ok()) return status;
  if (endpoint.exec && json::Flag(json::Field(user, "exec"), "provideClusterInfo"))
    endpoint.exec->cluster_json = ClusterInfo(cluster, endpoint.ca_pem);
  if (Status status = CheckTls(endpoint); !status.ok()) return status;
  return endpoint;
}

}  // namespace

Status ParseServer(const std::string& url, Endpoint& endpoint) {
  const std::string scheme = "https://";
  if (url.empty()) return Status(Code::kInvalid, "server: missing");
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
    endpoint.host = rest.substr(1, close - 1);
    rest.erase(0, close + 1);
    if (!rest.empty()) port = rest[0] == ':' ? rest.substr(1) : "";
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
  const Result<std::string> text = ReadWhole(path, YamlLimits{}.bytes + 1);
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
  Endpoint endpoint;
  const bool six = std::string(host).find(':') != std::string::npos;
  const std::string url = std::string("https://") + (six ? "[" : "") + host + (six ? "]:" : ":") + port;
  if (Status status = ParseServer(url, endpoint); !status.ok())
    return status.With("KUBERNETES_SERVICE_HOST, KUBERNETES_SERVICE_PORT");
  endpoint.token_file = std::string(kServiceAccount) + "token";
  endpoint.ca_file = std::string(kServiceAccount) + "ca.crt";
  Result<std::string> ca = ReadRegular(endpoint.ca_file, kMostOfAFile);
  if (!ca.ok()) return ca.status();
  endpoint.ca_pem = *ca;
  if (Status status = ReadProxyOfEnvironment(endpoint); !status.ok()) return status;
  if (Status status = CheckTls(endpoint); !status.ok()) return status;
  return endpoint;
}

}  // namespace trainyard::kube
