#include "operator/local/api/views.h"

#include <set>

#include "operator/base/json_access.h"

namespace trainyard::local {

ApiResult CoreEvents(const MemoryApi& api, const std::string& ns, const std::string& field_selector) {
  const ApiResult all = api.List(kube::kEvents, ns, {});
  const Result<Selector> selector = Selector::Parse({"", "v1", "events", "Event"}, "", field_selector);
  if (!selector.ok()) return BadRequest(selector.status().message());
  Json items = Json::array();
  for (const Json& event : all.body["items"]) {
    const Json& series = json::Field(event, "series");
    const std::string first = json::Text(event, "eventTime"), again = json::Text(series, "lastObservedTime"),
                      last = again.empty() ? first : again;
    const auto seconds = [](const std::string& text) { return FormatTime(ParseTime(text).value_or(Time{})); };
    const Json core = {{"metadata", event["metadata"]},
                       {"involvedObject", json::Field(event, "regarding")},
                       {"reason", json::Text(event, "reason")},
                       {"message", json::Text(event, "note")},
                       {"type", json::Text(event, "type")},
                       {"source", {{"component", json::Text(event, "reportingController")}}},
                       {"count", json::Whole(series, "count", 1)},
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

}  // namespace trainyard::local
