#include "operator/local/api/table.h"

#include <algorithm>

#include "operator/api/crd.h"
#include "operator/base/json_access.h"
#include "operator/local/api/object_path.h"

namespace trainyard::local {
namespace {

struct Column {
  std::string name, type;
  std::string path;  // JSONPath of the plain form .a.b.c
  int priority = 0;
};

std::string Age(const Json& object, Time now) {
  const Json created = AtPath(object, ".metadata.creationTimestamp");
  const std::optional<Time> time = created.is_string() ? ParseTime(created.get<std::string>()) : std::nullopt;
  return time ? FormatDuration(SecondsBetween(*time, now)) : "<unknown>";
}

Json PodCells(const Json& pod, Time now) {
  int64_t ready = 0, restarts = 0;
  std::string state = json::Text(json::Field(pod, "status"), "phase");
  const Json containers = json::List(json::Field(pod, "status"), "containerStatuses");
  for (const Json& container : containers) {
    ready += json::Flag(container, "ready") ? 1 : 0;
    restarts += json::Whole(container, "restartCount");
    if (const Json reason = json::Field(json::Field(json::Field(container, "state"), "waiting"), "reason");
        reason.is_string())
      state = reason.get<std::string>();
    if (const Json reason = json::Field(json::Field(json::Field(container, "state"), "terminated"), "reason");
        reason.is_string())
      state = reason.get<std::string>();
  }
  if (pod.contains("/metadata/deletionTimestamp"_json_pointer)) state = "Terminating";
  const size_t total = json::List(json::Field(pod, "spec"), "containers").size();
  const auto text = [](const std::string& found) { return found.empty() ? "<none>" : found; };
  return {pod["metadata"]["name"],
          std::to_string(ready) + "/" + std::to_string(total),
          state,
          restarts,
          Age(pod, now),
          text(json::Text(json::Field(pod, "status"), "podIP")),
          text(json::Text(json::Field(pod, "spec"), "nodeName"))};
}

const std::vector<Column>& PodColumns() {
  static const std::vector<Column> columns = {{"Name", "string", "", 0},   {"Ready", "string", "", 0},
                                              {"Status", "string", "", 0}, {"Restarts", "integer", "", 0},
                                              {"Age", "string", "", 0},    {"IP", "string", "", 1},
                                              {"Node", "string", "", 1}};
  return columns;
}

// The printer columns of the CRD, so that both places show the same.
const std::vector<Column>& JobColumns() {
  static const std::vector<Column> columns = [] {
    std::vector<Column> out = {{"Name", "string", ".metadata.name", 0}};
    const Json crd = api::CustomResourceDefinition();
    for (const Json& c : crd["spec"]["versions"][0]["additionalPrinterColumns"])
      out.push_back({c["name"], c["type"], c["jsonPath"], c.value("priority", 0)});
    return out;
  }();
  return columns;
}

const std::vector<Column>& EventColumns() {
  static const std::vector<Column> columns = {{"Last Seen", "string", "", 0},
                                              {"Type", "string", ".type", 0},
                                              {"Reason", "string", ".reason", 0},
                                              {"Object", "string", "", 0},
                                              {"Message", "string", "", 0}};
  return columns;
}

// Either of the two kinds of event.
Json EventCells(const Json& event, Time now) {
  const bool core = event.contains("involvedObject");
  const Json& about = json::Field(event, core ? "involvedObject" : "regarding");
  const std::string first = json::Text(event, core ? "firstTimestamp" : "eventTime"),
                    last = core ? json::Text(event, "lastTimestamp")
                                : json::Text(json::Field(event, "series"), "lastObservedTime");
  const std::optional<Time> seen = ParseTime(last.empty() ? first : last);
  std::string kind = json::Text(about, "kind");
  std::transform(kind.begin(), kind.end(), kind.begin(), [](unsigned char c) { return std::tolower(c); });
  return {seen ? FormatDuration(SecondsBetween(*seen, now)) : "<unknown>", json::Text(event, "type"),
          json::Text(event, "reason"), kind + "/" + json::Text(about, "name"),
          json::Text(event, core ? "message" : "note")};
}

const std::vector<Column>& ClaimColumns() {
  static const std::vector<Column> columns = {{"Name", "string", ".metadata.name", 0},
                                              {"Status", "string", ".status.phase", 0},
                                              {"Volume", "string", ".spec.volumeName", 0},
                                              {"Capacity", "string", ".status.capacity.storage", 0},
                                              {"Access Modes", "string", "", 0},
                                              {"StorageClass", "string", ".spec.storageClassName", 0},
                                              {"Age", "date", ".metadata.creationTimestamp", 0}};
  return columns;
}

// "RWO,RWX" for ReadWriteOnce and ReadWriteMany.
std::string AccessModes(const Json& claim) {
  std::string text;
  for (const Json& mode : json::List(json::Field(claim, "status"), "accessModes")) {
    if (!text.empty()) text += ',';
    for (const char c : mode.is_string() ? mode.get<std::string>() : "") {
      if (c >= 'A' && c <= 'Z') text += c;
    }
  }
  return text;
}

const std::vector<Column>& PlainColumns() {
  static const std::vector<Column> columns = {{"Name", "string", ".metadata.name", 0},
                                              {"Age", "date", ".metadata.creationTimestamp", 0}};
  return columns;
}

const std::vector<Column>& ColumnsOf(const kube::Resource& resource) {
  if (resource == kube::kPods) return PodColumns();
  if (resource.kind == kube::kEvents.kind) return EventColumns();
  if (resource == kube::kClaims) return ClaimColumns();
  return resource == kube::kTrainingJobs ? JobColumns() : PlainColumns();
}

Json Cells(const kube::Resource& resource, const Json& object, Time now) {
  if (resource == kube::kPods) return PodCells(object, now);
  if (resource.kind == kube::kEvents.kind) return EventCells(object, now);
  Json cells = Json::array();
  for (const Column& column : ColumnsOf(resource)) {
    const Json value = column.name == "Access Modes" ? Json(AccessModes(object)) : AtPath(object, column.path);
    cells.push_back(column.type == "date" ? Json(Age(object, now)) : value);
  }
  return cells;
}

}  // namespace

Json MakeTable(const kube::Resource& resource, const std::vector<Json>& objects, const std::string& version,
               bool headers, Time now) {
  Json table = {{"kind", "Table"},
                {"apiVersion", "meta.k8s.io/v1"},
                {"metadata", {{"resourceVersion", version}}},
                {"columnDefinitions", Json::array()},
                {"rows", Json::array()}};
  if (headers) {
    for (const Column& column : ColumnsOf(resource)) {
      table["columnDefinitions"].push_back({{"name", column.name},
                                            {"type", column.type == "date" ? "string" : column.type},
                                            {"format", column.name == "Name" ? "name" : ""},
                                            {"description", ""},
                                            {"priority", column.priority}});
    }
  }
  for (const Json& object : objects) {
    const Json part = {
        {"kind", "PartialObjectMetadata"}, {"apiVersion", "meta.k8s.io/v1"}, {"metadata", object["metadata"]}};
    table["rows"].push_back({{"cells", Cells(resource, object, now)}, {"object", part}});
  }
  return table;
}

}  // namespace trainyard::local
