#include "operator/reconcile/worker_pod.h"

#include <algorithm>
#include <charconv>
#include <cstdio>
#include <string_view>

#include "operator/api/labels.h"
#include "operator/api/validation.h"
#include "operator/api/worker_env.h"
#include "operator/base/json_access.h"
#include "operator/reconcile/gang.h"

namespace trainyard::reconcile {
namespace {

constexpr char kInfoPath[] = "/etc/trainyard", kSharedMemoryPath[] = "/dev/shm";

// FNV-1a, 64 bits.
uint64_t Hash(std::string_view text) {
  uint64_t hash = 14695981039346656037ull;
  for (const char c : text) hash = (hash ^ static_cast<unsigned char>(c)) * 1099511628211ull;
  return hash;
}

// Adds to a list of the template's; one that is no list is left for the server to refuse.
void Append(Json& object, const char* key, Json item) {
  Json& list = object[key];
  if (list.is_null()) list = Json::array();
  if (list.is_array()) list.push_back(std::move(item));
}

Json& ObjectAt(Json& object, const char* key) {
  Json& inner = object[key];
  if (!inner.is_object()) inner = Json::object();
  return inner;
}

Json Env(const char* name, const std::string& value) { return {{"name", name}, {"value", value}}; }
Json Env(const char* name, int64_t value) { return Env(name, std::to_string(value)); }
Json EnvOfField(const char* name, const char* field) {
  return {{"name", name}, {"valueFrom", {{"fieldRef", {{"fieldPath", field}}}}}};
}

constexpr char kPodAddress[] = "status.podIP";

// Worker 0 does not look for itself: behind a service's address some networks do not lead a pod back to itself.
Json EnvOfMaster(const char* name, int64_t rank, const std::string& master) {
  return rank == 0 ? EnvOfField(name, kPodAddress) : Env(name, master);
}

std::string TerminationLog(const Json& container) {
  const std::string own = json::Text(container, "terminationMessagePath");
  return own.empty() ? "/dev/termination-log" : own;
}

bool OnNodesNetwork(const TrainingJob& job) {
  return json::Flag(json::Field(job.spec.pod_template, "spec"), "hostNetwork");
}

// A pod has its own address, and one port does; on the node's network it shares that with whatever else is there. A
// declared port is then one of the node, of which the scheduler gives each to one pod: those of a job's workers that
// may share a node are all different, another job's begin elsewhere, and so do those of another attempt, in case one is
// taken. Above the ports of a node's own programs (kubelet 10250, kube-proxy 10256), below MasterPort's.
int64_t StatusPort(const TrainingJob& job, int64_t attempt, int64_t worker) {
  constexpr int64_t kFirst = 10260, kPorts = 20000 - kFirst;
  if (!OnNodesNetwork(job)) return kStatusPort;
  const auto begin = static_cast<int64_t>(Hash(job.uid + "/status/" + std::to_string(attempt)) % kPorts);
  return kFirst + (begin + worker) % kPorts;
}

Json WorkerEnvironment(const TrainingJob& job, int64_t attempt, int64_t rank, const std::string& master,
                       const Json& container) {
  const int64_t procs = api::ProcsPerWorker(job.spec), port = MasterPort(job.uid, attempt);
  Json list = Json::array({
      EnvOfMaster(env::kMasterAddr, rank, master),
      Env(env::kMasterPort, port),
      Env(env::kPetNodes, job.spec.workers),
      Env(env::kPetProcsPerNode, procs),
      Env(env::kPetNodeRank, rank),
      EnvOfMaster(env::kPetMasterAddr, rank, master),
      Env(env::kPetMasterPort, port),
      Env(env::kPetRendezvousBackend, "static"),
      Env(env::kPetMaxRestarts, int64_t{0}),
      Env(env::kJob, job.name),
      Env(env::kNamespace, job.ns),
      Env(env::kJobUid, job.uid),
      Env(env::kAttempt, attempt),
      Env(env::kGraceSeconds, job.spec.checkpoint.grace_seconds),
      Env(env::kStatusPort, StatusPort(job, attempt, rank)),
      Env(env::kTerminationLog, TerminationLog(container)),
      EnvOfField(env::kPodIp, kPodAddress),
  });
  // torchrun's own names only where one process is the pod: they would mislead torchrun otherwise.
  if (procs == 1) {
    list.push_back(Env(env::kRank, rank));
    list.push_back(Env(env::kLocalRank, int64_t{0}));
    list.push_back(Env(env::kWorldSize, job.spec.workers));
    list.push_back(Env(env::kLocalWorldSize, int64_t{1}));
    list.push_back(Env(env::kGroupRank, rank));
  }
  if (!job.spec.config.is_null()) list.push_back(Env(env::kConfig, std::string(kInfoPath) + "/config.json"));
  if (!job.spec.checkpoint.volume.is_null()) list.push_back(Env(env::kCheckpointDir, job.spec.checkpoint.path));
  return list;
}

// The configuration as a file.
void AddInfoVolume(Json& spec, Json& container) {
  const Json items = Json::array(
      {{{"path", "config.json"},
        {"fieldRef", {{"fieldPath", std::string("metadata.annotations['") + api::kAnnotationConfig + "']"}}}}});
  Append(spec, "volumes", {{"name", api::kInfoVolume}, {"downwardAPI", {{"items", items}}}});
  Append(container, "volumeMounts", {{"name", api::kInfoVolume}, {"mountPath", kInfoPath}, {"readOnly", true}});
}

Json Service(const TrainingJob& job, const std::string& name) {
  return {{"apiVersion", "v1"},
          {"kind", "Service"},
          {"metadata",
           {{"name", name},
            {"namespace", job.ns},
            {"labels", {{api::kLabelManaged, "true"}, {api::kLabelJobName, job.name}}},
            {"ownerReferences", OwnerReference(job)}}},
          // Ranks look for each other before they are ready.
          {"spec", {{"publishNotReadyAddresses", true}}}};
}

void AddCheckpointVolume(const api::Checkpoint& checkpoint, Json& spec, Json& container) {
  if (checkpoint.volume.is_null()) return;
  Json volume = checkpoint.volume;
  volume["name"] = api::kCheckpointVolume;
  Append(spec, "volumes", std::move(volume));
  Append(container, "volumeMounts", {{"name", api::kCheckpointVolume}, {"mountPath", checkpoint.path}});
}

// Kubernetes gives 64 MiB, and data loaders and NCCL die of it with a bus error.
void AddSharedMemory(const std::string& size_limit, Json& spec, Json& container) {
  const Json mounts = json::List(container, "volumeMounts");
  for (const Json& mount : mounts) {
    if (mount.is_object() && json::Field(mount, "mountPath") == kSharedMemoryPath) return;
  }
  Json source = {{"medium", "Memory"}};
  if (!size_limit.empty()) source["sizeLimit"] = size_limit;
  Append(spec, "volumes", {{"name", api::kSharedMemoryVolume}, {"emptyDir", std::move(source)}});
  Append(container, "volumeMounts", {{"name", api::kSharedMemoryVolume}, {"mountPath", kSharedMemoryPath}});
}

// Monitors find it by its name; on the node's network it is another one for each worker. Kueue takes pods of different
// ports for different roles, of which a group may have eight: there it has no name.
void NameStatusPort(const TrainingJob& job, int64_t attempt, int64_t worker, Json& container) {
  if (OnNodesNetwork(job) && !QueueOf(job).empty()) return;
  const Json own = json::List(container, "ports");
  for (const Json& declared : own) {
    if (declared.is_object() && json::Field(declared, "name") == kStatusPortName) return;
  }
  Append(container, "ports", {{"name", kStatusPortName}, {"containerPort", StatusPort(job, attempt, worker)}});
}

// What a container printed last says why it failed, unless it says so itself.
void KeepLastOutput(Json& container) {
  if (container.is_object() && !container.contains("terminationMessagePolicy"))
    container["terminationMessagePolicy"] = "FallbackToLogsOnError";
}

void FillTrainer(const TrainingJob& job, int64_t attempt, int64_t rank, const std::string& master, Json& spec) {
  const Json* trainer = api::TrainerContainer(job.spec.pod_template);
  const Json name = json::Field(*trainer, "name");
  for (Json& container : spec["containers"]) {
    if (json::Field(container, "name") != name) continue;
    Json variables = WorkerEnvironment(job, attempt, rank, master, container);
    // Ours first: the template's values may then refer to them as $(RANK).
    for (const Json& variable : json::List(container, "env")) variables.push_back(variable);
    container["env"] = std::move(variables);
    NameStatusPort(job, attempt, rank, container);
    KeepLastOutput(container);
    if (!job.spec.config.is_null()) AddInfoVolume(spec, container);
    AddCheckpointVolume(job.spec.checkpoint, spec, container);
    AddSharedMemory(job.spec.shared_memory.size_limit, spec, container);
    return;
  }
}

// Required of every term, since one that matches is enough; a term without any requirement matches no node, and stays.
// By the node's name, which is what a pod tells: its label kubernetes.io/hostname may be another. The API takes one
// name a requirement.
void AvoidNodes(const TrainingJob& job, Json& spec) {
  Json others = Json::array();
  for (const api::AvoidedNode& node : job.status.avoided_nodes) {
    if (node.failures >= job.spec.restart.avoid_nodes.after_failures)
      others.push_back({{"key", "metadata.name"}, {"operator", "NotIn"}, {"values", {node.node}}});
  }
  if (others.empty()) return;
  Json& required =
      ObjectAt(ObjectAt(ObjectAt(spec, "affinity"), "nodeAffinity"), "requiredDuringSchedulingIgnoredDuringExecution");
  Json& terms = required["nodeSelectorTerms"];
  if (terms.is_null()) {
    terms = Json::array({{{"matchFields", others}}});
    return;
  }
  for (Json& term : terms) {
    if (json::List(term, "matchExpressions").empty() && json::List(term, "matchFields").empty()) continue;
    for (const Json& other : others) Append(term, "matchFields", other);
  }
}

// The scheduler spreads what a service selects over nodes and zones, unless the pod says what it wants: here against
// those who pack nodes, over zones that the ranks' traffic then crosses, and at the price of counting the workers on
// each node for each pod. A constraint without a selector finds none to count; the defaults of a cluster's own profile
// do not hold beside it either. An empty list in the template leaves them in force.
// https://kubernetes.io/docs/concepts/scheduling-eviction/topology-spread-constraints/#cluster-level-default-constraints
void SpreadNothing(Json& spec) {
  if (!json::Field(spec, "topologySpreadConstraints").is_null()) return;
  spec["topologySpreadConstraints"] = Json::array(
      {{{"maxSkew", 1}, {"topologyKey", "kubernetes.io/hostname"}, {"whenUnsatisfiable", "ScheduleAnyway"}}});
}

std::string HashText(const Json& parts) {
  char text[17];
  std::snprintf(text, sizeof text, "%016llx",
                static_cast<unsigned long long>(Hash(parts.dump(-1, ' ', false, Json::error_handler_t::replace))));
  return text;
}

}  // namespace

Json OwnerReference(const TrainingJob& job) {
  return Json::array({{{"apiVersion", api::kApiVersion},
                       {"kind", api::kKind},
                       {"name", job.name},
                       {"uid", job.uid},
                       {"controller", true},
                       {"blockOwnerDeletion", true}}});
}

bool OwnedBy(const Json& object, const std::string& uid) {
  const Json& owners = json::List(json::Field(object, "metadata"), "ownerReferences");
  return std::any_of(owners.begin(), owners.end(), [&](const Json& owner) {
    return json::Text(owner, "uid") == uid && json::Flag(owner, "controller");
  });
}

std::string OfTemplate(const TrainingJob& job, const Json& pod, std::string message) {
  const Json& ours = json::List(json::Field(pod, "spec"), "containers");
  const Json& theirs = json::List(json::Field(job.spec.pod_template, "spec"), "containers");
  for (size_t i = 0; i < std::min(ours.size(), theirs.size()); ++i) {
    const size_t added = json::List(ours[i], "env").size() - json::List(theirs[i], "env").size();
    const std::string list = "spec.containers[" + std::to_string(i) + "].env[";
    for (size_t at = message.find(list); at != std::string::npos; at = message.find(list, at + 1)) {
      const char *begin = message.data() + at + list.size(), *end = message.data() + message.size();
      size_t index = 0;
      const char* behind = std::from_chars(begin, end, index).ptr;
      if (behind != begin && index >= added)
        message.replace(at + list.size(), static_cast<size_t>(behind - begin), std::to_string(index - added));
    }
  }
  return message;
}

std::string MasterName(const TrainingJob& job, int64_t attempt) {
  return api::PodName(job.name, attempt, 0) + "." + job.name + "." + job.ns + ".svc";
}

int64_t MasterPort(const std::string& uid, int64_t attempt) {
  return 20000 + static_cast<int64_t>(Hash(uid + "/" + std::to_string(attempt)) % 10000);
}

std::string SpecHash(const TrainingJob& job) {
  const api::JobSpec& spec = job.spec;
  Json parts = {
      spec.workers,         api::ProcsPerWorker(spec),    spec.config, spec.pod_template, spec.checkpoint.volume,
      spec.checkpoint.path, spec.checkpoint.grace_seconds};
  // Only where they are set: they came later, and the others' hashes stay what they were.
  if (!spec.shared_memory.size_limit.empty()) parts.push_back(spec.shared_memory.size_limit);
  if (spec.rendezvous != api::kByService) parts.push_back(spec.rendezvous);
  const api::Scheduling &ours = spec.scheduling, standard;
  if (ours.gang != standard.gang || !ours.priority_class_name.empty())
    parts.push_back({ours.gang, ours.queue, ours.priority_class_name});
  // The template's is a part of it already.
  if (const std::string queue = json::Text(job.labels, api::kLabelQueue); !queue.empty())
    parts.push_back(Json{{api::kLabelQueue, queue}});
  return HashText(parts);
}

std::string CheckpointHash(const TrainingJob& job) {
  const api::Checkpoint& checkpoint = job.spec.checkpoint;
  const Json& config = job.spec.config;
  return HashText({checkpoint.volume, checkpoint.path, json::Field(json::Field(config, "checkpoint"), "dir"),
                   json::Field(json::Field(config, "run"), "dir")});
}

Json WorkerLabels(const TrainingJob& job, int64_t attempt, int64_t rank) {
  return {{api::kLabelManaged, "true"},
          {api::kLabelJobName, job.name},
          {api::kLabelJobUid, job.uid},
          {api::kLabelAttempt, std::to_string(attempt)},
          {api::kLabelRank, std::to_string(rank)}};
}

Json WorkerPod(const TrainingJob& job, int64_t attempt, int64_t rank, const std::string& master) {
  Json pod = {{"apiVersion", "v1"}, {"kind", "Pod"}};
  Json& metadata = pod["metadata"] = json::Field(job.spec.pod_template, "metadata");
  if (!metadata.is_object()) metadata = Json::object();
  metadata["name"] = api::PodName(job.name, attempt, rank);
  metadata["namespace"] = job.ns;
  metadata["ownerReferences"] = OwnerReference(job);
  ObjectAt(metadata, "labels").update(WorkerLabels(job, attempt, rank));
  Json& annotations = ObjectAt(metadata, "annotations");
  if (!job.spec.config.is_null())
    annotations[api::kAnnotationConfig] = job.spec.config.dump(-1, ' ', false, Json::error_handler_t::replace);

  Json& spec = pod["spec"] = job.spec.pod_template["spec"];
  spec["restartPolicy"] = "Never";
  spec["hostname"] = api::PodName(job.name, attempt, rank);
  spec["subdomain"] = job.name;
  // Each service of the namespace would give each new pod some eight variables, until no program starts any more.
  if (json::Field(spec, "enableServiceLinks").is_null()) spec["enableServiceLinks"] = false;
  const Json own_grace = spec.value("terminationGracePeriodSeconds", Json(0));
  spec["terminationGracePeriodSeconds"] =
      std::max(own_grace.is_number_integer() ? own_grace.get<int64_t>() : 0, job.spec.checkpoint.grace_seconds + 10);
  FillTrainer(job, attempt, rank, master, spec);
  AvoidNodes(job, spec);
  SpreadNothing(spec);
  if (json::Field(spec, "initContainers").is_array()) {
    for (Json& container : spec["initContainers"]) KeepLastOutput(container);
  }
  return pod;
}

Json HeadlessService(const TrainingJob& job) {
  Json service = Service(job, job.name);
  service["spec"].update(
      {{"clusterIP", "None"}, {"selector", {{api::kLabelJobName, job.name}, {api::kLabelJobUid, job.uid}}}});
  return service;
}

Json MasterService(const TrainingJob& job, int64_t attempt, const std::string& address) {
  const int64_t port = MasterPort(job.uid, attempt);
  Json service = Service(job, api::MasterServiceName(job.name));
  service["spec"].update(
      {{"selector",
        {{api::kLabelJobUid, job.uid}, {api::kLabelAttempt, std::to_string(attempt)}, {api::kLabelRank, "0"}}},
       {"ports", Json::array({{{"name", "rendezvous"}, {"port", port}, {"targetPort", port}}})}});
  if (!address.empty()) service["spec"]["clusterIP"] = address;
  return service;
}

}  // namespace trainyard::reconcile
