#include "operator/local/node/pod_environment.h"

#include <unistd.h>

#include <algorithm>
#include <optional>
#include <sstream>
#include <string_view>

#include "common/cpus.h"
#include "operator/api/validation.h"
#include "operator/api/worker_env.h"
#include "operator/base/json_access.h"
#include "operator/local/node/pod_files.h"

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

Variables Inherited(const std::string& programs) {
  Variables variables;
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
std::string ThreadsEach(const Variables& variables) {
  const auto number = [&](const char* name) {
    const auto found = variables.find(name);
    return found == variables.end() ? 1 : std::max(1, std::atoi(found->second.c_str()));
  };
  const int ranks = number(env::kPetNodes) * number(env::kPetProcsPerNode);
  return std::to_string(std::max(1, AvailableCpus().count / ranks));
}

// CUDA_VISIBLE_DEVICES: as on a cluster a container sees the GPUs that it is limited to, and none without a limit. Of
// those that this process may use (`all`; by their numbers where it is not said), each worker of a job takes the next
// ones.
std::string GpusOf(const Json& container, const Variables& own, const std::optional<std::string>& all) {
  const int64_t count = api::DevicesOf(container);
  const auto rank = own.find(env::kPetNodeRank);
  const int64_t first = count * (rank == own.end() ? 0 : std::max(0, std::atoi(rank->second.c_str())));
  std::istringstream names(all.value_or(""));
  std::string taken, name;
  const auto take = [&](const std::string& gpu) { taken += (taken.empty() ? "" : ",") + gpu; };
  for (int64_t i = first; !all && i < first + count; ++i) take(std::to_string(i));
  for (int64_t i = 0; i < first + count && std::getline(names, name, ','); ++i) {
    if (i >= first) take(name);
  }
  return taken;
}

}  // namespace

std::string Expand(const std::string& text, const Variables& variables) {
  std::string out;
  size_t close = text.find(')');  // the next one, from i on
  for (size_t i = 0; i < text.size() && out.size() <= kMaxWord; ++i) {
    if (close != std::string::npos && close < i) close = text.find(')', i);
    const std::string_view rest = std::string_view(text).substr(i);
    const auto variable = rest.starts_with("$(") && close != std::string::npos
                              ? variables.find(rest.substr(2, close - i - 2))
                              : variables.end();
    if (rest.starts_with("$$")) {
      out += '$';
      ++i;
    } else if (variable != variables.end()) {
      out += variable->second;
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
  Variables own;
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
    if (name.size() + own[name].size() + 2 > kMaxWord)  // "name=value" and its end
      return Status(Code::kInvalid, "env " + name.substr(0, 100) + ": longer than " + std::to_string(kMaxWord) +
                                        " bytes, and no program can be given it; allowed: a file of a volume");
  }
  environment.variables = Inherited(view.programs);
  const auto all = environment.variables.find("CUDA_VISIBLE_DEVICES");
  environment.variables["CUDA_VISIBLE_DEVICES"] = GpusOf(
      container, own, all == environment.variables.end() ? std::nullopt : std::optional<std::string>(all->second));
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
