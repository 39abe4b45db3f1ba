#include "operator/local/route.h"

#include <set>
#include <vector>

#include "operator/base/json_access.h"

namespace trainyard::local {
namespace {

const Json* FindContainer(const Json& statuses, const std::string& name) {
  for (const Json& status : statuses) {
    if (json::Text(status, "name") == name) return &status;
  }
  return nullptr;
}

// Where the last `lines` lines begin.
std::streamoff TailOffset(std::ifstream& file, int64_t lines) {
  file.seekg(0, std::ios::end);
  std::streamoff at = file.tellg();
  for (int64_t seen = -1; at > 0; --at) {
    file.seekg(at - 1);
    if (file.get() == '\n' && ++seen == lines) break;
  }
  return at;
}

}  // namespace

std::optional<Route> ParseRoute(const std::string& path) {
  std::vector<std::string> parts;
  for (size_t begin = 1; begin <= path.size();) {
    const size_t end = std::min(path.find('/', begin), path.size());
    if (end > begin) parts.push_back(path.substr(begin, end - begin));
    begin = end + 1;
  }
  std::string group, version;
  size_t at = 0;
  if (parts.size() >= 3 && parts[0] == "api") {
    version = parts[1];
    at = 2;
  } else if (parts.size() >= 4 && parts[0] == "apis") {
    group = parts[1];
    version = parts[2];
    at = 3;
  } else {
    return std::nullopt;
  }
  Route route;
  if (parts[at] == "namespaces" && parts.size() - at >= 3) {
    route.ns = parts[at + 1];
    at += 2;
  } else if (parts[at] == "namespaces" && group.empty()) {
    route.kind = Route::kNamespaces;
    if (parts.size() > at + 1) route.name = parts[at + 1];
    return route;
  }
  const std::string plural = parts[at++];
  if (group.empty() && plural == "events") {
    route.kind = Route::kCoreEvents;
    return route;
  }
  route.resource = MemoryApi::FindResource(group, version, plural);
  if (!route.resource) return std::nullopt;
  if (at < parts.size()) route.name = parts[at++];
  if (at < parts.size()) route.subresource = parts[at++];
  if (at < parts.size()) return std::nullopt;
  return route;
}

ApiResult CoreEvents(const MemoryApi& api, const std::string& ns, const std::string& field_selector) {
  const ApiResult all = api.List(kube::kEvents, ns, {});
  const Result<Selector> selector = Selector::Parse("", field_selector);
  if (!selector.ok()) return Failure(400, "BadRequest", selector.status().message());
  Json items = Json::array();
  for (const Json& event : all.body["items"]) {
    const std::string first = json::Text(event, "eventTime"),
                      last = event.value("/series/lastObservedTime"_json_pointer, first);
    const auto seconds = [](const std::string& text) { return FormatTime(ParseTime(text).value_or(Time{})); };
    const Json core = {{"metadata", event["metadata"]},
                       {"involvedObject", json::Field(event, "regarding")},
                       {"reason", json::Text(event, "reason")},
                       {"message", json::Text(event, "note")},
                       {"type", json::Text(event, "type")},
                       {"source", {{"component", json::Text(event, "reportingController")}}},
                       {"count", event.value("/series/count"_json_pointer, 1)},
                       {"firstTimestamp", seconds(first)},
                       {"lastTimestamp", seconds(last)},
                       {"eventTime", nullptr},
                       {"reportingComponent", json::Text(event, "reportingController")},
                       {"reportingInstance", ""}};
    if (selector->Matches(core)) items.push_back(core);
  }
  return {200, {{"kind", "EventList"}, {"apiVersion", "v1"}, {"metadata", all.body["metadata"]}, {"items", items}}, {}};
}

ApiResult NamespaceAnswer(const MemoryApi& api, const std::string& name) {
  std::set<std::string> names = {"default"};
  const ApiResult jobs = api.List(kube::kTrainingJobs, "", {});
  for (const Json& job : jobs.body["items"]) names.insert(job["metadata"]["namespace"].get<std::string>());
  const auto object = [](const std::string& ns) {
    return Json{{"kind", "Namespace"},
                {"apiVersion", "v1"},
                {"metadata", {{"name", ns}, {"uid", "namespace-" + ns}}},
                {"status", {{"phase", "Active"}}}};
  };
  if (!name.empty())
    return names.contains(name) ? ApiResult{200, object(name), {}}
                                : Failure(404, "NotFound", "namespaces \"" + name + "\" not found");
  Json items = Json::array();
  for (const std::string& ns : names) items.push_back(object(ns));
  return {200,
          {{"kind", "NamespaceList"},
           {"apiVersion", "v1"},
           {"metadata", {{"resourceVersion", std::to_string(api.version())}}},
           {"items", items}},
          {}};
}

std::string LogSource::Read() {
  std::string text(64 << 10, '\0');
  file_->clear();  // the end of a moment ago
  file_->read(text.data(), static_cast<std::streamsize>(text.size()));
  text.resize(static_cast<size_t>(file_->gcount()));
  return text;
}

Result<LogSource> OpenLog(const std::filesystem::path& path, const Json& pod, const std::string& container,
                          const std::string& tail_lines, const std::string& limit_bytes) {
  if (!limit_bytes.empty()) return Status(Code::kInvalid, "limitBytes is not supported here");
  const std::string pod_name = pod["metadata"]["name"];
  const Json* main = FindContainer(json::List(json::Field(pod, "spec"), "containers"), container);
  const Json* init = FindContainer(json::List(json::Field(pod, "spec"), "initContainers"), container);
  if (!main && !init) return Status(Code::kInvalid, "container " + container + " is not valid for pod " + pod_name);
  auto file = std::make_shared<std::ifstream>(path, std::ios::binary);
  if (!*file) {
    return Status(Code::kInvalid, "container \"" + container + "\" in pod \"" + pod_name + "\" is waiting to start");
  }
  if (!tail_lines.empty()) file->seekg(TailOffset(*file, std::max<int64_t>(0, std::atoll(tail_lines.c_str()))));
  return LogSource(std::move(file));
}

bool ContainerRuns(const Json& pod, const std::string& container) {
  for (const char* list : {"/status/containerStatuses", "/status/initContainerStatuses"}) {
    if (const Json statuses = pod.value(Json::json_pointer(list), Json::array());
        const Json* status = FindContainer(statuses, container)) {
      return !json::Field(*status, "state").contains("terminated");
    }
  }
  return false;
}

}  // namespace trainyard::local
