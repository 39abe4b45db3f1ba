#include "operator/local/api/pod_update.h"

#include <algorithm>
#include <set>
#include <string>

#include "operator/base/json_access.h"

namespace trainyard::local {
namespace {

using api::Cause;

constexpr char kOnly[] =
    "Forbidden: pod updates may not change fields other than "
    "`spec.containers[*].image`,`spec.initContainers[*].image`,`spec.activeDeadlineSeconds`,`spec.tolerations` (only "
    "additions to existing tolerations),`spec.terminationGracePeriodSeconds` (allow it to be set to 1 if it was "
    "previously negative)";

Cause Forbidden(const std::string& field, const std::string& message) {
  return {"FieldValueForbidden", message, field, "", ""};
}

// `now` with `key` as it was before.
void PutBack(const Json& before, const char* key, Json& now) {
  const Json& value = json::Field(before, key);
  value.is_null() ? void(now.erase(key)) : void(now[key] = value);
}

// Unset, or longer than it is to be.
bool MayBeActiveFor(const Json& before, const Json& now) {
  if (now == before) return true;
  return now.is_number_integer() && now > 0 && (before.is_null() || now < before);
}

Json WithoutSeconds(Json toleration) {
  if (toleration.is_object()) toleration.erase("tolerationSeconds");
  return toleration;
}

// Tolerations are only added to, and how long each holds may change.
void CheckTolerations(const Json& before, const Json& now, std::vector<Cause>& causes) {
  std::set<Json> there;
  for (const Json& each : now) there.insert(WithoutSeconds(each));
  const bool all =
      std::all_of(before.begin(), before.end(), [&](const Json& each) { return there.contains(WithoutSeconds(each)); });
  if (!all)
    causes.push_back(Forbidden("spec.tolerations",
                               "Forbidden: existing toleration can not be modified except its tolerationSeconds"));
}

// Gates are only taken away.
void CheckGates(const Json& before, const Json& now, std::vector<Cause>& causes) {
  std::set<std::string> there;
  for (const Json& gate : before) there.insert(json::Text(gate, "name"));
  for (size_t i = 0; i < now.size(); ++i) {
    const std::string name = json::Text(now[i], "name");
    if (!there.contains(name))
      causes.push_back(Forbidden("spec.schedulingGates[" + std::to_string(i) + "].name",
                                 "Forbidden: only deletion is allowed, but found new scheduling gate '" + name + "'"));
  }
}

}  // namespace

std::vector<Cause> CheckPodUpdate(const Json& before, const Json& now) {
  std::vector<Cause> causes;
  Json rest = now;
  for (const char* list : {"containers", "initContainers"}) {
    const Json& old = json::List(before, list);
    if (json::List(now, list).size() != old.size()) {
      causes.push_back(
          Forbidden(std::string("spec.") + list, "Forbidden: pod updates may not add or remove containers"));
      return causes;
    }
    for (size_t i = 0; i < old.size(); ++i) PutBack(old[i], "image", rest[list][i]);
  }
  if (MayBeActiveFor(json::Field(before, "activeDeadlineSeconds"), json::Field(now, "activeDeadlineSeconds")))
    PutBack(before, "activeDeadlineSeconds", rest);
  CheckTolerations(json::List(before, "tolerations"), json::List(now, "tolerations"), causes);
  CheckGates(json::List(before, "schedulingGates"), json::List(now, "schedulingGates"), causes);
  for (const char* judged : {"tolerations", "schedulingGates"}) PutBack(before, judged, rest);
  if (json::Whole(before, "terminationGracePeriodSeconds") < 0 &&
      json::Whole(now, "terminationGracePeriodSeconds") == 1)
    PutBack(before, "terminationGracePeriodSeconds", rest);
  if (json::Text(before, "nodeName").empty()) PutBack(before, "nodeName", rest);
  if (rest != before) causes.push_back(Forbidden("spec", kOnly));
  return causes;
}

const Json& PodStatusSchema() {
  static const Json schema = [] {
    const Json text = {{"type", "string"}}, whole = {{"type", "integer"}}, flag = {{"type", "boolean"}};
    // A server knows more fields than are read here.
    const auto object = [](const Json& properties) {
      return Json{{"type", "object"}, {"properties", properties}, {"x-kubernetes-preserve-unknown-fields", true}};
    };
    const auto list = [](const Json& items) { return Json{{"type", "array"}, {"items", items}}; };
    const Json condition = object({{"type", text},
                                   {"status", text},
                                   {"reason", text},
                                   {"message", text},
                                   {"lastProbeTime", text},
                                   {"lastTransitionTime", text}});
    const Json state = object({{"waiting", object({{"reason", text}, {"message", text}})},
                               {"running", object({{"startedAt", text}})},
                               {"terminated", object({{"exitCode", whole},
                                                      {"signal", whole},
                                                      {"reason", text},
                                                      {"message", text},
                                                      {"startedAt", text},
                                                      {"finishedAt", text}})}});
    const Json container = object({{"name", text},
                                   {"image", text},
                                   {"imageID", text},
                                   {"containerID", text},
                                   {"ready", flag},
                                   {"started", flag},
                                   {"restartCount", whole},
                                   {"state", state},
                                   {"lastState", state}});
    Json properties = {{"conditions", list(condition)},
                       {"podIPs", list(object({{"ip", text}}))},
                       {"hostIPs", list(object({{"ip", text}}))}};
    for (const char* name : {"containerStatuses", "initContainerStatuses", "ephemeralContainerStatuses"})
      properties[name] = list(container);
    for (const char* name :
         {"phase", "reason", "message", "podIP", "hostIP", "startTime", "qosClass", "nominatedNodeName"})
      properties[name] = text;
    return object(properties);
  }();
  return schema;
}

}  // namespace trainyard::local
