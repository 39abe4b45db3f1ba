#include "operator/local/pod_environment.h"

#include <unistd.h>

#include <algorithm>
#include <regex>

#include "common/cpus.h"
#include "operator/api/worker_env.h"
#include "operator/base/json_access.h"
#include "operator/local/pod_files.h"

extern char** environ;

namespace trainyard::local {
namespace {

bool IsContractName(const std::string& name) {
  static const std::vector<std::string> torchrun = {env::kMasterAddr, env::kMasterPort,   env::kRank,
                                                    env::kLocalRank,  env::kWorldSize,    env::kLocalWorldSize,
                                                    env::kGroupRank,  env::kUseAgentStore};
  return std::find(torchrun.begin(), torchrun.end(), name) != torchrun.end() || name.starts_with("PET_") ||
         name.starts_with("TRAINYARD_");
}

std::map<std::string, std::string> Inherited(const std::string& programs) {
  std::map<std::string, std::string> variables;
  for (char** entry = environ; *entry; ++entry) {
    const std::string text = *entry;
    const size_t equal = text.find('=');
    if (equal != std::string::npos && !IsContractName(text.substr(0, equal)))
      variables[text.substr(0, equal)] = text.substr(equal + 1);
  }
  variables["PATH"] = programs + ":" + variables["PATH"];
  return variables;
}

// Several workers share this machine's processors; on a cluster a limit would say so.
std::string ThreadsEach(const std::map<std::string, std::string>& variables) {
  const auto number = [&](const char* name) {
    const auto found = variables.find(name);
    return found == variables.end() ? 1 : std::max(1, std::atoi(found->second.c_str()));
  };
  const int ranks = number(env::kPetNodes) * number(env::kPetProcsPerNode);
  return std::to_string(std::max(1, AvailableCpus().count / ranks));
}

// Replaces names and addresses of services in `value`; returns the first that does not resolve.
std::string ReplaceNames(std::string& value, const Resolver& resolver) {
  static const std::regex name(
      R"(([a-z0-9][-a-z0-9]*)\.([a-z0-9][-a-z0-9]*)\.([a-z0-9][-a-z0-9]*)\.svc(\.cluster\.local)?|)"
      R"(\b127\.255\.[0-9]{1,3}\.[0-9]{1,3}\b)");  // kServiceRange
  std::string out;
  auto rest = value.cbegin();
  for (std::smatch match; std::regex_search(rest, value.cend(), match, name); rest = match[0].second) {
    const std::optional<std::string> address =
        match[1].matched ? resolver.host(match[1], match[2], match[3]) : resolver.service(match[0]);
    if (!address) return match[0];
    out.append(rest, match[0].first);
    out += *address;
  }
  out.append(rest, value.cend());
  value = out;
  return "";
}

}  // namespace

std::string Expand(const std::string& text, const std::map<std::string, std::string>& variables) {
  std::string out;
  for (size_t i = 0; i < text.size(); ++i) {
    const size_t close = text.find(')', i);
    if (text[i] == '$' && i + 1 < text.size() && text[i + 1] == '$') {
      out += '$';
      ++i;
    } else if (text[i] == '$' && i + 1 < text.size() && text[i + 1] == '(' && close != std::string::npos &&
               variables.contains(text.substr(i + 2, close - i - 2))) {
      out += variables.at(text.substr(i + 2, close - i - 2));
      i = close;
    } else {
      out += text[i];
    }
  }
  return out;
}

std::string HostName(const Json& pod) {
  const std::string own = json::Text(json::Field(pod, "spec"), "hostname");
  return own.empty() ? json::Text(json::Field(pod, "metadata"), "name") : own;
}

Result<ContainerEnvironment> MakeEnvironment(const Json& pod, const Json& container, const ContainerView& view,
                                             const Resolver& resolver) {
  ContainerEnvironment environment;
  std::map<std::string, std::string> own;
  for (const Json& variable : json::List(container, "env")) {
    const std::string name = json::Text(variable, "name");
    if (const Json source = json::Field(variable, "valueFrom"); source.is_object()) {
      if (!source.contains("fieldRef")) continue;  // a key that may be missing: Obstacles has seen it
      Result<std::string> value = FieldReference(pod, json::Text(source["fieldRef"], "fieldPath"));
      if (!value.ok()) return value.status().With("env " + name);
      own[name] = *value;
    } else {
      own[name] = Expand(json::Text(variable, "value"), own);
    }
    if (std::string missing = ReplaceNames(own[name], resolver); !missing.empty()) environment.waiting_for = missing;
  }
  environment.variables = Inherited(view.programs);
  for (auto& [name, value] : own) environment.variables[name] = value;
  if (own.contains(env::kTerminationLog))
    environment.variables[env::kTerminationLog] =
        view.messages + "/" + PodFiles::MessageName(json::Text(container, "name"));
  environment.variables.try_emplace("GLOO_SOCKET_IFNAME", "lo");
  environment.variables.try_emplace("OMP_NUM_THREADS", ThreadsEach(own));
  environment.variables["TRAINYARD_PROGRESS"] = "lines";
  if (view.volumes) environment.variables[env::kVolumes] = *view.volumes;
  environment.variables["HOSTNAME"] = HostName(pod);
  return environment;
}

}  // namespace trainyard::local
