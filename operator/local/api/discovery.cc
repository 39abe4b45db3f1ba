#include "operator/local/api/discovery.h"

#include <map>

#include "common/build_info.h"
#include "operator/api/crd.h"
#include "operator/api/pod_fields.h"
#include "operator/base/json_access.h"
#include "operator/local/api/admission.h"
#include "operator/local/api/memory_api.h"

namespace trainyard::local {
namespace {

constexpr char kMinor[] = "34";

Json Verbs() { return {"create", "delete", "deletecollection", "get", "list", "patch", "update", "watch"}; }

// The served version of the CRD.
const Json& CustomResource() {
  static const Json version = api::CustomResourceDefinition()["spec"]["versions"][0];
  return version;
}

Json ResourceEntry(const Resource& resource) {
  Json entry = {{"name", resource.plural},
                {"singularName", ""},
                {"namespaced", true},
                {"kind", resource.kind},
                {"verbs", Verbs()}};
  if (resource == kube::kTrainingJobs) {
    entry["singularName"] = "trainingjob";
    entry["shortNames"] = {"tj"};
    entry["categories"] = {"all"};
  } else if (resource == kube::kPods) {
    entry["singularName"] = "pod";
    entry["shortNames"] = {"po"};
    entry["categories"] = {"all"};
  } else if (resource == kube::kServices) {
    entry["singularName"] = "service";
    entry["shortNames"] = {"svc"};
  } else if (resource == kube::kClaims) {
    entry["singularName"] = "persistentvolumeclaim";
    entry["shortNames"] = {"pvc"};
  } else if (resource == kube::kEvents) {
    entry["shortNames"] = {"ev"};
  }
  return entry;
}

Json ResourceList(const std::string& group_version) {
  Json list = {
      {"kind", "APIResourceList"}, {"apiVersion", "v1"}, {"groupVersion", group_version}, {"resources", Json::array()}};
  for (const Resource& resource : MemoryApi::Resources()) {
    if (resource.ApiVersion() != group_version) continue;
    list["resources"].push_back(ResourceEntry(resource));
    if (HasStatus(resource)) {
      list["resources"].push_back({{"name", resource.plural + "/status"},
                                   {"singularName", ""},
                                   {"namespaced", true},
                                   {"kind", resource.kind},
                                   {"verbs", {"get", "patch", "update"}}});
    }
    if (resource == kube::kTrainingJobs && CustomResource()["subresources"].contains("scale"))
      list["resources"].push_back({{"name", resource.plural + "/scale"},
                                   {"singularName", ""},
                                   {"namespaced", true},
                                   {"group", "autoscaling"},
                                   {"version", "v1"},
                                   {"kind", "Scale"},
                                   {"verbs", {"get", "patch", "update"}}});
    if (resource == kube::kPods)
      list["resources"].push_back(
          {{"name", "pods/log"}, {"singularName", ""}, {"namespaced", true}, {"kind", "Pod"}, {"verbs", {"get"}}});
  }
  if (group_version == "v1") {
    Json events = ResourceEntry(kube::kEvents);
    events["verbs"] = {"get", "list"};
    list["resources"].push_back(events);
    list["resources"].push_back({{"name", "namespaces"},
                                 {"singularName", "namespace"},
                                 {"namespaced", false},
                                 {"kind", "Namespace"},
                                 {"shortNames", {"ns"}},
                                 {"verbs", {"get", "list"}}});
  }
  return list;
}

Json Groups() {
  Json list = {{"kind", "APIGroupList"}, {"apiVersion", "v1"}, {"groups", Json::array()}};
  for (const Resource& resource : MemoryApi::Resources()) {
    if (resource.group.empty()) continue;
    const Json version = {{"groupVersion", resource.ApiVersion()}, {"version", resource.version}};
    list["groups"].push_back({{"name", resource.group}, {"versions", {version}}, {"preferredVersion", version}});
  }
  return list;
}

std::string SchemaName(const Resource& resource) {
  return (resource.group.empty() ? "io.k8s.api.core" : "dev.trainyard") + ("." + resource.version) + "." +
         resource.kind;
}

// Quantities and the like are texts in OpenAPI.
void NameTypes(Json& schema) {
  if (json::Text(schema, "type") == "quantity") schema["type"] = "string";
  for (auto& [key, inner] : schema.items()) {
    if (inner.is_object()) NameTypes(inner);
  }
}

Json SchemaOf(const Resource& resource) {
  Json schema = {{"type", "object"}, {"x-kubernetes-preserve-unknown-fields", true}};
  if (resource == kube::kTrainingJobs) {
    schema = api::JobSchema();
  } else if (resource == kube::kPods) {
    schema = api::PodTemplateSchema();
    schema["description"] = "Containers that run together; on one machine, processes.";
    NameTypes(schema);
  }
  if (resource == kube::kTrainingJobs || resource == kube::kPods)
    schema["properties"]["metadata"] = {{"type", "object"},
                                        {"description", "Standard object metadata."},
                                        {"x-kubernetes-preserve-unknown-fields", true}};
  return schema;
}

// Just enough for `kubectl explain`, and for kubectl to see that the server validates fields itself.
Json OpenApi(const std::string& group_version) {
  Json document = {{"openapi", "3.0.0"},
                   {"info", {{"title", "Trainyard local"}, {"version", Build().version}}},
                   {"paths", Json::object()},
                   {"components", {{"schemas", Json::object()}}}};
  for (const Resource& resource : MemoryApi::Resources()) {
    if (resource.ApiVersion() != group_version) continue;
    const Json kind = {{"group", resource.group}, {"version", resource.version}, {"kind", resource.kind}};
    Json schema = SchemaOf(resource);
    schema["x-kubernetes-group-version-kind"] = {kind};
    document["components"]["schemas"][SchemaName(resource)] = schema;
    const Json parameters =
        Json::array({{{"name", "fieldValidation"}, {"in", "query"}, {"schema", {{"type", "string"}}}},
                     {{"name", "dryRun"}, {"in", "query"}, {"schema", {{"type", "string"}}}}});
    const auto operation = [&](const char* action) {
      const Json media = {
          {"application/json", {{"schema", {{"$ref", "#/components/schemas/" + SchemaName(resource)}}}}}};
      return Json{{"parameters", parameters},
                  {"x-kubernetes-action", action},
                  {"x-kubernetes-group-version-kind", kind},
                  {"requestBody", {{"content", media}}},
                  {"responses", {{"200", {{"description", "OK"}, {"content", media}}}}}};
    };
    const std::string path = resource.Path("{namespace}");
    document["paths"][path] = {{"get", operation("list")}, {"post", operation("post")}};
    document["paths"][path + "/{name}"] = {
        {"get", operation("get")}, {"put", operation("put")}, {"patch", operation("patch")}};
  }
  return document;
}

std::map<std::string, std::string> OpenApiPaths() {
  std::map<std::string, std::string> paths;  // "apis/G/V" -> group version
  for (const Resource& resource : MemoryApi::Resources())
    paths[(resource.group.empty() ? "api/" : "apis/") + resource.ApiVersion()] = resource.ApiVersion();
  return paths;
}

}  // namespace

std::optional<Json> DiscoveryDocument(const std::string& path) {
  if (path == "/version")
    return Json{{"major", "1"},
                {"minor", kMinor},
                {"gitVersion", std::string("v1.") + kMinor + ".0-trainyard"},
                {"platform", "linux/amd64"}};
  if (path == "/api")
    return Json{{"kind", "APIVersions"}, {"versions", {"v1"}}, {"serverAddressByClientCIDRs", Json::array()}};
  if (path == "/apis") return Groups();
  if (path == "/openapi/v3") {
    Json paths = Json::object();
    for (const auto& [key, version] : OpenApiPaths())
      paths[key] = {{"serverRelativeURL", "/openapi/v3/" + key + "?hash=1"}};
    return Json{{"paths", paths}};
  }
  for (const auto& [key, version] : OpenApiPaths()) {
    if (path == "/openapi/v3/" + key) return OpenApi(version);
    if (path == "/" + key) return ResourceList(version);
  }
  const Json groups = Groups();
  for (const Json& group : groups["groups"]) {
    if (path != "/apis/" + group["name"].get<std::string>()) continue;
    Json document = group;
    document["kind"] = "APIGroup";
    document["apiVersion"] = "v1";
    return document;
  }
  return std::nullopt;
}

}  // namespace trainyard::local
