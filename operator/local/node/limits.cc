#include "operator/local/node/limits.h"

#include <algorithm>
#include <map>
#include <set>

#include "operator/api/json.h"
#include "operator/api/labels.h"
#include "operator/api/pod_fields.h"
#include "operator/api/schema.h"
#include "operator/base/json_access.h"
#include "operator/local/node/pod_files.h"
#include "operator/reconcile/worker_pod.h"

namespace trainyard::local {
namespace {

using Names = std::set<std::string, std::less<>>;
using Reasons = std::map<std::string, const char*, std::less<>>;
using json::Field, json::List, json::Text;

constexpr char kOneNode[] = "there is one node, this machine";
constexpr char kYou[] = "processes run as you";
constexpr char kShared[] = "processes share this machine's";
constexpr char kProbe[] = "a process is ready when it runs";

const Names& FollowedByPod() {
  static const Names names = {"containers", "initContainers", "volumes", "restartPolicy",
                              "terminationGracePeriodSeconds"};
  return names;
}
const Names& FollowedByContainer() {
  // An image has a line of its own; ports and the policy for pulling say nothing that matters here.
  static const Names names = {"name",    "command",         "args",          "env",
                              "envFrom", "workingDir",      "restartPolicy", "volumeMounts",
                              "image",   "imagePullPolicy", "ports",         "terminationMessagePolicy"};
  return names;
}

const char* ReasonOf(const std::string& field) {
  static const Reasons reasons = {{"nodeSelector", kOneNode},
                                  {"nodeName", kOneNode},
                                  {"affinity", kOneNode},
                                  {"tolerations", kOneNode},
                                  {"topologySpreadConstraints", kOneNode},
                                  {"priorityClassName", kOneNode},
                                  {"schedulerName", kOneNode},
                                  {"serviceAccountName", kYou},
                                  {"automountServiceAccountToken", kYou},
                                  {"securityContext", kYou},
                                  {"hostNetwork", kShared},
                                  {"hostPID", kShared},
                                  {"hostIPC", kShared},
                                  {"shareProcessNamespace", kShared},
                                  {"dnsPolicy", kShared},
                                  {"dnsConfig", kShared},
                                  {"hostAliases", kShared},
                                  {"imagePullSecrets", "images are ignored"},
                                  {"resources", "there are no limits of CPU and memory; nvidia.com/gpu is followed"},
                                  {"livenessProbe", kProbe},
                                  {"readinessProbe", kProbe},
                                  {"startupProbe", kProbe},
                                  {"lifecycle", "hooks are not run"},
                                  {"terminationMessagePath", "TRAINYARD_TERMINATION_LOG names the file"},
                                  {"activeDeadlineSeconds", "there is no such limit"}};
  const auto found = reasons.find(field);
  return found == reasons.end() ? "it has no meaning for processes" : found->second;
}

void ListIgnored(const Json& object, const std::string& path, const Names& followed, std::vector<std::string>& lines) {
  if (!object.is_object()) return;
  for (const auto& [key, value] : object.items()) {
    if (!followed.contains(key) && !value.is_null()) lines.push_back(path + "." + key + ": " + ReasonOf(key));
  }
}

// ConfigMaps and Secrets do not exist here; one that need not exist elsewhere either is no obstacle.
bool Needed(const Json& reference) { return !json::Flag(reference, "optional"); }

void CheckEnvironment(const Json& pod, const Json& container, const std::string& who, std::vector<std::string>& lines) {
  for (const Json& source : List(container, "envFrom")) {
    for (const char* kind : {"configMapRef", "secretRef"}) {
      if (const Json& reference = Field(source, kind); reference.is_object() && Needed(reference))
        lines.push_back(who + ": envFrom: " + kind + " " + Text(reference, "name") + " does not exist on one machine");
    }
  }
  for (const Json& variable : List(container, "env")) {
    const Json& source = Field(variable, "valueFrom");
    if (!source.is_object()) continue;
    const std::string env = who + ": env " + Text(variable, "name") + ": ";
    for (const auto& [kind, reference] : source.items()) {
      if (kind == "fieldRef") {
        const auto value = FieldReference(pod, Text(reference, "fieldPath"));
        if (!value.ok()) lines.push_back(env + value.status().message());
      } else if (Needed(reference)) {
        lines.push_back(env + kind + " does not exist on one machine; allowed: value, fieldRef");
      }
    }
  }
}

void CheckVolume(const Json& pod, const Json& volume, std::vector<std::string>& lines) {
  const auto path = PodFiles({}, pod).VolumePath(volume);
  if (!path.ok()) lines.push_back(path.status().message());
  for (const Json& item : List(Field(volume, "downwardAPI"), "items")) {
    const std::string file = "volume " + Text(volume, "name") + ": " + Text(item, "path") + ": ";
    if (!StaysInside(Text(item, "path"))) lines.push_back(file + "leaves the volume");
    const Json& reference = Field(item, "fieldRef");
    if (!reference.is_object()) {
      lines.push_back(file + "resourceFieldRef does not exist on one machine; allowed: fieldRef");
    } else if (const auto value = FieldReference(pod, Text(reference, "fieldPath")); !value.ok()) {
      lines.push_back(file + value.status().message());
    }
  }
}

}  // namespace

std::vector<std::string> IgnoredFields(const Json& job) {
  std::vector<std::string> lines;
  for (const char* field : {"gang", "queue", "priorityClassName"}) {
    const std::string value = Text(Field(Field(job, "spec"), "scheduling"), field);
    if (!value.empty() && value != api::kNoGang)
      lines.push_back(std::string("spec.scheduling.") + field + ": " + kOneNode);
  }
  if (!Field(Field(Field(job, "metadata"), "labels"), api::kLabelQueue).is_null())
    lines.push_back(std::string("metadata.labels.") + api::kLabelQueue + ": there is no Kueue here");
  const std::string path = "spec.template.spec";
  const Json& pod = Field(Field(Field(job, "spec"), "template"), "spec");
  Names images;
  for (const char* list : {"initContainers", "containers"}) {
    const Json& containers = List(pod, list);
    for (size_t i = 0; i < containers.size(); ++i) {
      ListIgnored(containers[i], path + "." + list + "[" + std::to_string(i) + "]", FollowedByContainer(), lines);
      if (!Field(containers[i], "image").is_null()) images.insert(api::Shown(containers[i]["image"]));
    }
  }
  ListIgnored(pod, path, FollowedByPod(), lines);
  for (const std::string& image : images) lines.push_back("image " + image + ": commands come from PATH");
  return lines;
}

std::vector<std::string> JobObstacles(const Json& job) {
  std::vector<api::FieldError> none;
  Json pod = reconcile::WorkerPod(api::JobFromJson(job, none), 1, 0, "");
  api::Prune(api::PodTemplateSchema(), pod, "");  // as the API does: what is null is not there
  return Obstacles(pod);
}

std::vector<std::string> Obstacles(const Json& pod) {
  std::vector<std::string> lines;
  const Json& spec = Field(pod, "spec");
  Names volumes;
  for (const Json& volume : List(spec, "volumes")) {
    volumes.insert(Text(volume, "name"));
    CheckVolume(pod, volume, lines);
  }
  for (const char* list : {"initContainers", "containers"}) {
    for (const Json& container : List(spec, list)) {
      const std::string who = "container " + Text(container, "name");
      if (Text(container, "restartPolicy") == "Always")
        lines.push_back(who + ": restartPolicy: Always (a sidecar) is not supported on one machine");
      if (List(container, "command").empty())
        lines.push_back(who + ": has no command, and images are ignored on one machine: set command");
      CheckEnvironment(pod, container, who, lines);
      for (const Json& mount : List(container, "volumeMounts")) {
        const std::string volume = Text(mount, "name");
        if (!volumes.contains(volume)) lines.push_back(who + ": volumeMounts: the pod has no volume " + volume);
        if (!StaysInside(Text(mount, "subPath")))
          lines.push_back(who + ": volumeMounts " + volume + ": subPath " + Text(mount, "subPath") +
                          " leaves the volume");
        if (!Field(mount, "subPathExpr").is_null())
          lines.push_back(who + ": volumeMounts " + volume + ": subPathExpr is not supported on one machine");
      }
    }
  }
  return lines;
}

}  // namespace trainyard::local
