#include "operator/reconcile/pod_record.h"

#include <charconv>

#include "operator/api/labels.h"

namespace trainyard::reconcile {
namespace {

using Json = nlohmann::json;

std::string Text(const Json& object, const char* pointer) {
  const Json::json_pointer at(pointer);
  return object.contains(at) && object[at].is_string() ? object[at].get<std::string>() : "";
}

std::string Entry(const Json& object, const char* map, const char* key) {
  const Json metadata = object.value("metadata", Json::object());
  const auto found = metadata.find(map);
  return found != metadata.end() && found->is_object() && found->contains(key) && (*found)[key].is_string()
             ? (*found)[key].get<std::string>()
             : "";
}

std::optional<int64_t> Number(const std::string& text) {
  int64_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size() || value < 0) return std::nullopt;
  return value;
}

PodEnd EndOf(const Json& terminated) {
  return {.exit_code = terminated.value("exitCode", int64_t{1}),
          .signal = terminated.value("signal", int64_t{0}),
          .reason = terminated.value("reason", ""),
          .message = terminated.value("message", ""),
          .time = ParseTime(terminated.value("finishedAt", ""))};
}

void ReadConditions(const Json& status, PodRecord& record) {
  for (const Json& condition : status.value("conditions", Json::array())) {
    const std::string type = condition.value("type", ""), state = condition.value("status", "");
    if (state == "True") record.true_conditions.push_back(type);
    if (type == "PodScheduled") {
      record.scheduled = state == "True";
      if (state == "False") {
        record.waiting_reason = condition.value("reason", "");
        record.waiting_message = condition.value("message", "");
      }
    }
    if (type == "Ready") record.ready = state == "True";
    if (type == "DisruptionTarget") record.disrupted = state == "True";
  }
}

// The trainer's container: the one named trainer, else the first.
std::string TrainerName(const Json& pod) {
  const Json containers = pod.value("spec", Json::object()).value("containers", Json::array());
  for (const Json& container : containers) {
    if (container.value("name", "") == "trainer") return "trainer";
  }
  return containers.empty() ? "" : containers[0].value("name", "");
}

void ReadContainers(const Json& pod, const Json& status, PodRecord& record) {
  const std::string trainer = TrainerName(pod);
  const auto look = [&](const Json& container, bool decides) {
    const Json state = container.value("state", Json::object());
    if (state.contains("terminated") && decides) record.end = EndOf(state["terminated"]);
    if (state.contains("waiting") && record.waiting_reason.empty()) {
      record.waiting_reason = state["waiting"].value("reason", "");
      record.waiting_message = state["waiting"].value("message", "");
    }
  };
  // An init container that failed is the end of the worker: restartPolicy is Never.
  for (const Json& container : status.value("initContainerStatuses", Json::array())) {
    const Json state = container.value("state", Json::object());
    const bool failed = state.contains("terminated") && state["terminated"].value("exitCode", int64_t{0}) != 0;
    look(container, failed);
  }
  for (const Json& container : status.value("containerStatuses", Json::array()))
    look(container, container.value("name", "") == trainer);
}

}  // namespace

PodRecord PodFromJson(const Json& pod) {
  PodRecord record;
  record.name = Text(pod, "/metadata/name");
  record.ns = Text(pod, "/metadata/namespace");
  record.uid = Text(pod, "/metadata/uid");
  for (const Json& owner : pod.value("/metadata/ownerReferences"_json_pointer, Json::array())) {
    if (owner.value("controller", false)) record.owner_uid = owner.value("uid", "");
  }
  record.job_name = Entry(pod, "labels", api::kLabelJobName);
  record.job_uid = Entry(pod, "labels", api::kLabelJobUid);
  record.attempt = Number(Entry(pod, "labels", api::kLabelAttempt)).value_or(0);
  record.rank = Number(Entry(pod, "labels", api::kLabelRank)).value_or(-1);
  record.master = Entry(pod, "annotations", api::kAnnotationMaster);
  record.node = Text(pod, "/spec/nodeName");
  record.deleting = !Text(pod, "/metadata/deletionTimestamp").empty();
  record.created = ParseTime(Text(pod, "/metadata/creationTimestamp"));
  const Json status = pod.value("status", Json::object());
  record.ip = Text(status, "/podIP");
  ReadConditions(status, record);
  ReadContainers(pod, status, record);
  // A pod that failed as a whole (evicted, its node gone) may have no container state to tell of it.
  const std::string phase = Text(status, "/phase");
  if (!record.end && phase == "Failed")
    record.end = {.exit_code = 1,
                  .signal = 0,
                  .reason = Text(status, "/reason"),
                  .message = Text(status, "/message"),
                  .time = std::nullopt};
  if (!record.end && phase == "Succeeded") record.end = PodEnd{};
  return record;
}

}  // namespace trainyard::reconcile
