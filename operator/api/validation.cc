#include "operator/api/validation.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <set>
#include <string_view>

#include "operator/api/json.h"
#include "operator/api/labels.h"
#include "operator/api/metadata.h"
#include "operator/api/pod_checks.h"
#include "operator/api/pod_fields.h"
#include "operator/api/quantity.h"
#include "operator/api/rules.h"
#include "operator/api/schema.h"
#include "operator/api/worker_env.h"
#include "operator/base/json_access.h"

namespace trainyard::api {
namespace {

using Kind = FieldError::Kind;

// The names that the operator sets itself; a template may not.
constexpr std::array kContractNames = {env::kMasterAddr,
                                       env::kMasterPort,
                                       env::kRank,
                                       env::kLocalRank,
                                       env::kWorldSize,
                                       env::kLocalWorldSize,
                                       env::kGroupRank,
                                       env::kPetNodes,
                                       env::kPetProcsPerNode,
                                       env::kPetNodeRank,
                                       env::kPetMasterAddr,
                                       env::kPetMasterPort,
                                       env::kPetRendezvousBackend,
                                       env::kPetMaxRestarts,
                                       env::kJob,
                                       env::kNamespace,
                                       env::kJobUid,
                                       env::kAttempt,
                                       env::kConfig,
                                       env::kCheckpointDir,
                                       env::kGraceSeconds,
                                       env::kStatusPort,
                                       env::kPodIp,
                                       env::kTerminationLog,
                                       env::kVolumes};

void CheckContainer(const Json& container, const std::string& path, std::vector<FieldError>& errors) {
  if (!container.is_object()) {
    errors.push_back({Kind::kInvalid, path, Shown(container), "an object"});
    return;
  }
  if (!container.contains("name") || !container["name"].is_string())
    errors.push_back({Kind::kRequired, path + ".name", "", "a string"});
  // It would bring a rank back inside an attempt; of an init container it is what makes it a sidecar.
  for (const char* restarts : {"restartPolicy", "restartPolicyRules"}) {
    if (const Json& value = json::Field(container, restarts); !value.is_null())
      errors.push_back(
          {Kind::kInvalid, path + "." + restarts, Shown(value), "nothing: the operator restarts all workers together"});
  }
  if (container.contains("env") && !container["env"].is_array()) {
    errors.push_back({Kind::kInvalid, path + ".env", Shown(container["env"]), "a list"});
  }
  const Json& variables = json::List(container, "env");
  for (size_t i = 0; i < variables.size() && errors.size() <= kMostFieldErrors; ++i) {
    const std::string name =
        variables[i].is_object() && variables[i].contains("name") && variables[i]["name"].is_string()
            ? variables[i]["name"].get<std::string>()
            : "";
    if (std::find(kContractNames.begin(), kContractNames.end(), name) != kContractNames.end()) {
      errors.push_back({Kind::kInvalid, path + ".env[" + std::to_string(i) + "].name", name,
                        "a name that the operator does not set itself"});
    }
  }
}

void CheckTemplate(const JobSpec& spec, std::vector<FieldError>& errors) {
  const Json& pod = json::Field(spec.pod_template, "spec");
  if (!pod.is_object()) {
    errors.push_back({Kind::kRequired, "spec.template.spec", "", "a pod's spec"});
    return;
  }
  for (const auto& [key, value] : spec.pod_template.items()) {
    if (key == "spec" || key == "metadata" || errors.size() > kMostFieldErrors) continue;
    const std::string nearest = Nearest(key, {"spec", "metadata"});
    errors.push_back(
        {Kind::kUnknown, "spec.template." + key, Shown(value), nearest.empty() ? "" : "did you mean " + nearest + "?"});
  }
  const Json& containers = json::Field(pod, "containers");
  if (!containers.is_array() || containers.empty()) {
    errors.push_back({Kind::kRequired, "spec.template.spec.containers", "", "a list with at least one container"});
  } else {
    for (size_t i = 0; i < containers.size() && errors.size() <= kMostFieldErrors; ++i)
      CheckContainer(containers[i], "spec.template.spec.containers[" + std::to_string(i) + "]", errors);
  }
  const Json& init = json::Field(pod, "initContainers");
  if (!init.is_null() &&
      (!init.is_array() || !std::all_of(init.begin(), init.end(), [](const Json& each) { return each.is_object(); })))
    errors.push_back({Kind::kInvalid, "spec.template.spec.initContainers", Shown(init), "a list of containers"});
  if (const Json policy = pod.value("restartPolicy", Json("Never")); policy != "Never") {
    errors.push_back({Kind::kInvalid, "spec.template.spec.restartPolicy", Shown(policy),
                      "Never: the operator restarts all workers together"});
  }
  for (const char* owned : {"hostname", "subdomain"}) {
    if (pod.contains(owned))
      errors.push_back({Kind::kInvalid, std::string("spec.template.spec.") + owned, Shown(pod[owned]),
                        "nothing: the operator sets it"});
  }
}

void CheckRules(const Restart& restart, std::vector<FieldError>& errors) {
  if (const size_t bytes = RuleBytes(restart.rules); bytes > kMostRuleBytes)
    errors.push_back(
        {Kind::kInvalid, "spec.restart.rules", std::to_string(bytes) + " bytes",
         "at most " + std::to_string(kMostRuleBytes) +
             " bytes in all: a condition's length, 8 for each exit code, and 32 for each reason and its length"});
  for (size_t i = 0; i < restart.rules.size(); ++i) {
    const RestartRule& rule = restart.rules[i];
    const std::string path = "spec.restart.rules[" + std::to_string(i) + "]";
    const int matches = !rule.on_pod_condition.empty() + !rule.on_exit_codes.empty() + !rule.on_reasons.empty();
    if (matches != 1) {
      errors.push_back({Kind::kInvalid, path, matches == 0 ? "none" : "several",
                        "exactly one of onPodCondition, onExitCodes and onReasons, not empty"});
    }
  }
  if (restart.backoff.max_seconds < restart.backoff.initial_seconds) {
    errors.push_back(
        {Kind::kInvalid, "spec.restart.backoff.maxSeconds", std::to_string(restart.backoff.max_seconds),
         "at least spec.restart.backoff.initialSeconds, which is " + std::to_string(restart.backoff.initial_seconds)});
  }
}

void CheckCheckpoint(const Checkpoint& checkpoint, std::vector<FieldError>& errors) {
  if (checkpoint.path.empty() || checkpoint.path.front() != '/') {
    errors.push_back({Kind::kInvalid, "spec.checkpoint.path", Shown(checkpoint.path), "an absolute path"});
  }
  if (!checkpoint.volume.is_null() && (checkpoint.volume.size() != 1 || checkpoint.volume.contains("name"))) {
    errors.push_back({Kind::kInvalid, "spec.checkpoint.volume", Shown(checkpoint.volume),
                      "one volume source without a name, such as persistentVolumeClaim: {claimName: ...}"});
  }
}

void CheckScheduling(const JobSpec& spec, std::vector<FieldError>& errors) {
  const Scheduling& scheduling = spec.scheduling;
  if (!QueueIsAllowed(scheduling.queue, scheduling.gang))
    errors.push_back({Kind::kInvalid, "spec.scheduling.queue", Shown(scheduling.queue),
                      "a queue of Volcano's, " + WhenQueueIsAllowed()});
  const std::string own = json::Text(json::Field(spec.pod_template, "spec"), "priorityClassName");
  if (!scheduling.priority_class_name.empty() && !own.empty() && own != scheduling.priority_class_name) {
    errors.push_back({Kind::kInvalid, "spec.scheduling.priorityClassName", Shown(scheduling.priority_class_name),
                      "what spec.template.spec.priorityClassName says, " + Shown(own) + ", or one of the two"});
  }
}

void CheckSharedMemory(const SharedMemory& memory, std::vector<FieldError>& errors) {
  if (memory.size_limit.empty() || Quantity(memory.size_limit).value_or(0) > 0) return;
  errors.push_back(
      {Kind::kInvalid, "spec.sharedMemory.sizeLimit", Shown(memory.size_limit), "a quantity above 0, such as 8Gi"});
}

void AddCauses(const std::vector<Cause>& causes, std::vector<FieldError>& errors) {
  for (const Cause& cause : causes) {
    const bool missing = cause.reason == "FieldValueRequired";
    errors.push_back({missing ? Kind::kRequired : Kind::kInvalid, cause.field, cause.value, cause.allowed});
  }
}

// The operator mounts spec.checkpoint.volume in the trainer's container, and a place takes one volume.
void CheckCheckpointMount(const JobSpec& spec, std::vector<FieldError>& errors) {
  const Json* trainer = TrainerContainer(spec.pod_template);
  if (spec.checkpoint.volume.is_null() || !trainer) return;
  for (const Json& mount : json::List(*trainer, "volumeMounts")) {
    if (json::Text(mount, "mountPath") != spec.checkpoint.path) continue;
    errors.push_back({Kind::kInvalid, "spec.checkpoint.path", Shown(spec.checkpoint.path),
                      "a place where the template mounts nothing; volume " + json::Text(mount, "name") + " is there"});
  }
}

// A kubelet takes a relative path from /; people who write one mean another place.
void CheckMountPaths(const Json& pod, std::vector<FieldError>& errors) {
  for (const char* list : {"initContainers", "containers"}) {
    const Json& containers = json::List(pod, list);
    for (size_t i = 0; i < containers.size(); ++i) {
      const Json& mounts = json::List(containers[i], "volumeMounts");
      for (size_t j = 0; j < mounts.size(); ++j) {
        const std::string path = json::Text(mounts[j], "mountPath");
        if (!path.starts_with('/'))
          errors.push_back({Kind::kInvalid,
                            std::string("spec.template.spec.") + list + "[" + std::to_string(i) + "].volumeMounts[" +
                                std::to_string(j) + "].mountPath",
                            Shown(path), "an absolute path"});
      }
    }
  }
}

// Unknown fields, and those that do not fit the schema.
std::vector<FieldError> CheckFields(const Json& schema, const Json& value, const std::string& path) {
  std::vector<FieldError> errors;
  Json known = value;
  for (const UnknownField& field : Prune(schema, known, path)) {
    errors.push_back(
        {Kind::kUnknown, field.path, "", field.nearest.empty() ? "" : "did you mean " + field.nearest + "?"});
  }
  AddCauses(CheckSchema(schema, known, path), errors);
  return errors;
}

// The count of a quantity such as 2 or "2"; nothing when it is none.
std::optional<int64_t> WholeQuantity(const Json& value) {
  if (value.is_number_integer()) return value.get<int64_t>();
  if (!value.is_string()) return std::nullopt;
  const auto& text = value.get_ref<const std::string&>();
  int64_t count = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), count);
  if (error != std::errc() || end != text.data() + text.size()) return std::nullopt;
  return count;
}

}  // namespace

const Json* TrainerContainer(const Json& pod) {
  const Json& containers = json::List(json::Field(pod, "spec"), "containers");
  for (const Json& container : containers) {
    if (json::Text(container, "name") == "trainer") return &container;
  }
  return containers.empty() ? nullptr : &containers.front();
}

int64_t DevicesOf(const Json& container) {
  const Json& limits = json::Field(json::Field(container, "resources"), "limits");
  int64_t devices = 0;
  for (const auto& [name, quantity] : limits.items()) {
    const bool device = name.ends_with("/gpu") || name.starts_with("nvidia.com/mig-");
    if (device) devices += std::clamp<int64_t>(WholeQuantity(quantity).value_or(0), 0, kMaxProcsPerWorker);
  }
  return devices;
}

int64_t ProcsPerWorker(const JobSpec& spec) {
  if (spec.procs_per_worker) return *spec.procs_per_worker;
  const Json* trainer = TrainerContainer(spec.pod_template);
  if (!trainer) return 1;
  return std::clamp<int64_t>(DevicesOf(*trainer), 1, kMaxProcsPerWorker);
}

// Those that the operator adds to the template's.
std::set<std::string> OwnVolumes(const JobSpec& spec) {
  std::set<std::string> names = {kSharedMemoryVolume};
  if (!spec.config.is_null()) names.insert(kInfoVolume);
  if (!spec.checkpoint.volume.is_null()) names.insert(kCheckpointVolume);
  return names;
}

std::vector<FieldError> CheckPodFields(const JobSpec& spec) {
  const Json& schema = PodTemplateSchema();
  std::vector<FieldError> errors = CheckFields(schema, spec.pod_template, "spec.template");
  if (errors.empty())
    AddCauses(CheckLabels(json::Field(spec.pod_template, "metadata"), "spec.template.metadata"), errors);
  if (errors.empty())
    AddCauses(CheckPodSpec(json::Field(spec.pod_template, "spec"), "spec.template.spec", OwnVolumes(spec)), errors);
  if (errors.empty()) CheckMountPaths(json::Field(spec.pod_template, "spec"), errors);
  if (errors.empty()) CheckCheckpointMount(spec, errors);
  if (!spec.checkpoint.volume.is_null()) {
    Json volume = spec.checkpoint.volume;
    volume["name"] = "checkpoint";
    const Json& volumes = schema["properties"]["spec"]["properties"]["volumes"];
    for (FieldError& error : CheckFields(volumes["items"], volume, "spec.checkpoint.volume"))
      errors.push_back(std::move(error));
  }
  return errors;
}

std::vector<FieldError> CheckMetadata(const Json& metadata) {
  std::vector<FieldError> errors = CheckFields(MetadataSchema(), metadata, "metadata");
  if (errors.empty()) AddCauses(CheckLabels(metadata, "metadata"), errors);
  if (const std::string ns = json::Text(metadata, "namespace"); errors.empty() && !ns.empty() && !IsDnsLabel(ns))
    errors.push_back({Kind::kInvalid, "metadata.namespace", Shown(ns),
                      "at most 63 characters of a-z, 0-9 and -, with a letter or digit at both ends"});
  return errors;
}

size_t RuleBytes(const std::vector<RestartRule>& rules) {
  constexpr size_t kCode = 8, kReason = 32;  // part of the API: whatever they are in this build
  size_t bytes = 0;
  for (const RestartRule& rule : rules) {
    bytes += rule.on_pod_condition.size() + kCode * rule.on_exit_codes.size();
    for (const std::string& reason : rule.on_reasons) bytes += kReason + reason.size();
  }
  return bytes;
}

std::vector<FieldError> Validate(const TrainingJob& job) {
  std::vector<FieldError> errors;
  const Json object = {{"metadata", {{"name", job.name}}}};
  if (const Rule& name = RootRules().front(); !name.allows(object, nullptr)) {
    errors.push_back({Kind::kInvalid, name.field, Shown(job.name),
                      "at most 40 characters of a-z, 0-9 and -, from a letter to a letter or digit"});
  }
  CheckTemplate(job.spec, errors);
  CheckRules(job.spec.restart, errors);
  CheckCheckpoint(job.spec.checkpoint, errors);
  CheckSharedMemory(job.spec.shared_memory, errors);
  CheckScheduling(job.spec, errors);
  return errors;
}

}  // namespace trainyard::api
