#include "operator/reconcile/pod_record.h"

#include <charconv>

#include "common/text.h"
#include "operator/api/labels.h"
#include "operator/api/validation.h"
#include "operator/api/worker_env.h"
#include "operator/base/json_access.h"

namespace trainyard::reconcile {
namespace {

using Json = nlohmann::json;
using json::Field, json::Flag, json::List, json::Text, json::Whole;

constexpr size_t kMaxText = 1024;  // bytes of what others say that are kept
constexpr size_t kLongestUid = 64;

std::string Entry(const Json& object, const char* map, const char* key) {
  return Text(Field(Field(object, "metadata"), map), key);
}

std::optional<int64_t> Number(const std::string& text) {
  int64_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size() || value < 0) return std::nullopt;
  return value;
}

PodEnd EndOf(const Json& terminated) {
  return {.exit_code = std::max<int64_t>(0, Whole(terminated, "exitCode", 1)),
          .signal = json::Count(terminated, "signal"),
          .reason = Text(terminated, "reason"),
          .words = ReadLastWords(Text(terminated, "message")),
          .time = ParseTime(Text(terminated, "finishedAt"))};
}

void NoteWait(const Json& by, TextPool& texts, PodRecord& record) {
  record.waiting_reason = texts.Keep(Text(by, "reason"));
  record.waiting_message = texts.Keep(Shorten(Text(by, "message"), kMaxText));
}

void ReadConditions(const Json& status, TextPool& texts, PodRecord& record) {
  std::string types;
  for (const Json& condition : List(status, "conditions")) {
    const std::string type = Text(condition, "type"), state = Text(condition, "status");
    if (state == "True") types += type + "\n";
    if (type == "PodScheduled") {
      record.scheduled = state == "True";
      if (record.scheduled) record.scheduled_at = ParseTime(Text(condition, "lastTransitionTime"));
      if (state == "False") NoteWait(condition, texts, record);
    }
    if (type == "Ready") record.ready = state == "True";
    if (type == "DisruptionTarget" && state == "True") {
      record.disrupted = true;
      record.disrupted_at = ParseTime(Text(condition, "lastTransitionTime"));
      const std::string reason = Text(condition, "reason"), message = Text(condition, "message");
      record.disruption =
          texts.Keep(Shorten(reason + (reason.empty() || message.empty() ? "" : ": ") + message, kMaxText));
    }
  }
  record.true_conditions = texts.Keep(types);
}

bool IsSidecar(const Json& pod, const std::string& name) {
  for (const Json& container : List(Field(pod, "spec"), "initContainers")) {
    if (Text(container, "name") == name) return Text(container, "restartPolicy") == "Always";
  }
  return false;
}

void ReadContainer(const Json& container, bool decides, TextPool& texts, PodRecord& record) {
  const Json& state = Field(container, "state");
  if (const Json& terminated = Field(state, "terminated"); terminated.is_object() && decides)
    record.end = EndOf(terminated);
  if (const Json& waiting = Field(state, "waiting"); waiting.is_object() && record.waiting_reason.empty())
    NoteWait(waiting, texts, record);
}

std::optional<Time> StartOf(const Json& state) {
  const Json& running = Field(state, "running");
  return ParseTime(Text(running.is_object() ? running : Field(state, "terminated"), "startedAt"));
}

const Json* StatusPortOf(const Json& container) {
  for (const Json& variable : List(container, "env")) {
    if (Text(variable, "name") == env::kStatusPort) return &variable;
  }
  return nullptr;
}

// Whatever a webhook has put before it, the trainer is the container that the operator gave a port. A pod of an older
// operator's has none.
const Json* TrainerOf(const Json& pod) {
  for (const Json& container : List(Field(pod, "spec"), "containers")) {
    if (StatusPortOf(container)) return &container;
  }
  return api::TrainerContainer(pod);
}

void ReadContainers(const Json& pod, const Json& status, TextPool& texts, PodRecord& record) {
  const Json* container = TrainerOf(pod);
  const std::string trainer = container ? Text(*container, "name") : "";
  // An init container that failed is the end of the worker, unless it is a sidecar, which the kubelet starts
  // again.
  for (const Json& init : List(status, "initContainerStatuses")) {
    const Json& terminated = Field(Field(init, "state"), "terminated");
    const bool failed = terminated.is_object() && Whole(terminated, "exitCode") != 0;
    const bool decides = failed && !IsSidecar(pod, Text(init, "name"));
    ReadContainer(init, decides, texts, record);
    if (decides) record.end->init_container = Text(init, "name");
  }
  for (const Json& main : List(status, "containerStatuses")) {
    const bool decides = Text(main, "name") == trainer;
    ReadContainer(main, decides, texts, record);
    if (decides) record.started_at = StartOf(Field(main, "state"));
  }
}

// Whether each container of the spec has ended, and no sidecar among the initContainers runs on. The phase says so
// later: once the kubelet has taken the pod apart.
bool AllEnded(const Json& pod, const Json& status) {
  for (const Json& init : List(status, "initContainerStatuses")) {
    if (Field(Field(init, "state"), "running").is_object()) return false;
  }
  size_t ended = 0;
  for (const Json& container : List(status, "containerStatuses"))
    ended += Field(Field(container, "state"), "terminated").is_object() ? 1 : 0;
  return ended > 0 && ended == List(Field(pod, "spec"), "containers").size();
}

// Whether what the kubelet says of the whole pod is the cause: its container says that it was killed at most, or that
// it ended well, which it did because it was told to. So it is when a pod is evicted for what it took of its node's
// disk, and when its activeDeadlineSeconds are over.
bool ExplainsMore(const Json& status, const PodEnd& end) {
  const bool silent = end.reason.empty() || end.reason == "Error" || end.reason == "Completed" ||
                      end.reason == "ContainerStatusUnknown";
  return !Text(status, "reason").empty() && silent && end.init_container.empty();
}

// What the operator gave it. Any user may make such a pod, with any text in it.
int StatusPort(const Json& trainer) {
  const Json* variable = StatusPortOf(trainer);
  const int64_t port = variable ? Number(Text(*variable, "value")).value_or(0) : 0;
  return port <= 65535 ? static_cast<int>(port) : 0;
}

}  // namespace

bool PodRecord::HasCondition(const std::string& type) const {
  return !type.empty() && ("\n" + true_conditions.str()).find("\n" + type + "\n") != std::string::npos;
}

PodRecord PodFromJson(const Json& pod, TextPool& texts) {
  PodRecord record;
  const Json &metadata = Field(pod, "metadata"), &status = Field(pod, "status");
  record.name = Text(metadata, "name");
  record.uid = Text(metadata, "uid");
  record.job_uid = texts.Keep(Cut(Entry(pod, "labels", api::kLabelJobUid), kLongestUid));
  record.orphan = List(metadata, "ownerReferences").empty();
  for (const Json& owner : List(metadata, "ownerReferences")) {
    // The server asks of a uid that it is not empty: one of a megabyte, on a pod that anyone may label, is no job's.
    const std::string uid = Text(owner, "uid");
    if (!Flag(owner, "controller") || uid.size() > kLongestUid) continue;
    record.owner_uid = texts.Keep(uid);
    record.of_job = Text(owner, "apiVersion") == api::kApiVersion && Text(owner, "kind") == api::kKind &&
                    record.owner_uid == record.job_uid;
  }
  record.job_key = texts.Keep(Text(metadata, "namespace") + "/" + Entry(pod, "labels", api::kLabelJobName));
  record.attempt = Number(Entry(pod, "labels", api::kLabelAttempt)).value_or(0);
  record.rank = Number(Entry(pod, "labels", api::kLabelRank)).value_or(-1);
  record.node = texts.Keep(Text(Field(pod, "spec"), "nodeName"));
  record.deleting = !Text(metadata, "deletionTimestamp").empty();
  record.created = ParseTime(Text(metadata, "creationTimestamp"));
  // The timestamp is the end of the grace. The kubelet takes an ended pod away without one, and the API server moves
  // the timestamp of the deletion before there: when that was asked for is lost.
  record.gone_by = ParseTime(Text(metadata, "deletionTimestamp"));
  if (record.gone_by) {
    const int64_t grace = json::Count(metadata, "deletionGracePeriodSeconds");
    record.forced = grace == 0;
    const Time asked = After(*record.gone_by, -static_cast<double>(grace));
    // Whoever deletes it may name any grace: before it was there nobody asked.
    if (!record.forced && asked >= record.created.value_or(asked)) record.deleted_at = asked;
  }
  record.ip = Text(status, "podIP");
  if (const Json* trainer = TrainerOf(pod)) record.status_port = StatusPort(*trainer);
  ReadConditions(status, texts, record);
  ReadContainers(pod, status, texts, record);
  // A pod that failed as a whole (evicted, its node gone) may have no container state to tell of it.
  const std::string phase = Text(status, "phase");
  record.over = phase == "Succeeded" || phase == "Failed" || AllEnded(pod, status);
  if (!record.end && phase == "Failed")
    record.end = PodEnd{.exit_code = std::nullopt, .words = ReadLastWords(Text(status, "message"))};
  if (phase == "Failed" && ExplainsMore(status, *record.end)) {
    record.end->reason = Text(status, "reason");
    record.end->words.message = Shorten(Text(status, "message"), kMaxText);
    record.end->of_pod = true;
  }
  if (!record.end && phase == "Succeeded") record.end = PodEnd{};
  return record;
}

kube::FieldPaths FieldsOfPod() {
  kube::FieldPaths paths;
  for (const char* field : {"name", "namespace", "uid", "labels", "ownerReferences", "creationTimestamp",
                            "deletionTimestamp", "deletionGracePeriodSeconds"})
    paths.push_back(std::string("metadata.") + field);
  for (const char* field : {"nodeName", "containers.name", "initContainers.name", "initContainers.restartPolicy"})
    paths.push_back(std::string("spec.") + field);
  paths.push_back("spec.containers.env=" + std::string(env::kStatusPort));
  for (const char* field : {"phase", "reason", "message", "podIP", "containerStatuses.name", "containerStatuses.state",
                            "initContainerStatuses.name", "initContainerStatuses.state"})
    paths.push_back(std::string("status.") + field);
  for (const char* field : {"type", "status", "reason", "message", "lastTransitionTime"})
    paths.push_back(std::string("status.conditions.") + field);
  return paths;
}

}  // namespace trainyard::reconcile
