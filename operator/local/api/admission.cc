#include "operator/local/api/admission.h"

#include <algorithm>
#include <functional>
#include <utility>

#include "operator/api/crd.h"
#include "operator/api/json.h"
#include "operator/api/metadata.h"
#include "operator/api/pod_checks.h"
#include "operator/api/pod_fields.h"
#include "operator/api/rules.h"
#include "operator/api/schema.h"
#include "operator/base/json_access.h"
#include "operator/local/api/pod_update.h"
#include "operator/local/api/service_address.h"

namespace trainyard::local {
namespace {

using api::Cause;

// Every value at `path` of `object`, with its own path.
void ForEachAt(const Json& object, const std::vector<const char*>& path, size_t depth, const std::string& name,
               const std::function<void(const Json&, const std::string&)>& f) {
  if (object.is_null()) return;
  if (depth == path.size()) return f(object, name);
  const std::string part = path[depth];
  if (part != "[]")
    return ForEachAt(json::Field(object, path[depth]), path, depth + 1, name.empty() ? part : name + "." + part, f);
  if (!object.is_array()) return;
  for (size_t i = 0; i < object.size(); ++i)
    ForEachAt(object[i], path, depth + 1, name + "[" + std::to_string(i) + "]", f);
}

// What the CRD's rules say of an object that fits the schema.
std::vector<Cause> CheckRules(const Json& object, const Json* old) {
  std::vector<Cause> causes;
  for (const api::FieldRule& rule : api::FieldRules()) {
    ForEachAt(object, rule.path, 0, "", [&](const Json& value, const std::string& path) {
      if (!rule.allows(value))
        causes.push_back(
            {"FieldValueInvalid", "Invalid value: " + api::Shown(value) + ": " + rule.message, path, "", ""});
    });
  }
  for (const api::Rule& rule : api::RootRules()) {
    if (!rule.allows(object, old))
      causes.push_back({"FieldValueInvalid", "Invalid value: \"object\": " + rule.message,
                        rule.reported_at_field ? rule.field : "<nil>", "", ""});
  }
  return causes;
}

// A pod is its template with a name and a status.
const Json& PodSchema() {
  static const Json schema = [] {
    Json pod = api::PodTemplateSchema();
    pod["required"] = {"spec"};
    for (const char* text : {"apiVersion", "kind"}) pod["properties"][text] = {{"type", "string"}};
    pod["properties"]["status"] = PodStatusSchema();
    pod["properties"]["metadata"] = {{"type", "object"}};
    return pod;
  }();
  return schema;
}

const Json& JobSchema() {
  static const Json schema = api::JobSchema();
  return schema;
}

void FindAtomic(const Json& schema, const std::string& pointer, std::vector<std::string>& pointers) {
  if (json::Text(schema, "x-kubernetes-map-type") == "atomic") return pointers.push_back(pointer);
  for (const auto& [key, property] : json::Field(schema, "properties").items())
    FindAtomic(property, pointer + "/" + key, pointers);
}

std::vector<Cause> CheckMetadata(const Json& metadata) {
  std::vector<Cause> causes = api::CheckSchema(api::MetadataSchema(), metadata, "metadata");
  return causes.empty() ? api::CheckLabels(metadata, "metadata") : causes;
}

// What a server fills in that others rely on.
void DefaultPodSpec(Json& spec) {
  for (const auto& [key, value] : {std::pair<const char*, Json>{"restartPolicy", "Always"},
                                   {"terminationGracePeriodSeconds", 30},
                                   {"schedulerName", "default-scheduler"},
                                   {"securityContext", Json::object()}}) {
    if (!spec.contains(key)) spec[key] = value;
  }
  for (const char* list : {"initContainers", "containers"}) {
    if (!spec.contains(list) || !spec[list].is_array()) continue;
    for (Json& container : spec[list]) {
      if (!container.is_object()) continue;
      if (!container.contains("terminationMessagePath")) container["terminationMessagePath"] = "/dev/termination-log";
      if (!container.contains("terminationMessagePolicy")) container["terminationMessagePolicy"] = "File";
    }
  }
}

// Sets `key` of `object` to what `source` has there, or removes it.
void Take(Json& object, const Json& source, const char* key) {
  const Json& value = json::Field(source, key);
  value.is_null() ? void(object.erase(key)) : void(object[key] = value);
}

// A claim's status is its binder's: here it is the node agent.
std::vector<Cause> CheckClaim(const Json& claim, const Json* old) {
  const Json& spec = json::Field(claim, "spec");
  std::vector<Cause> causes;
  if (json::List(spec, "accessModes").empty())
    causes.push_back(
        {"FieldValueRequired", "Required value: at least 1 access mode is required", "spec.accessModes", "", ""});
  if (json::Field(json::Field(json::Field(spec, "resources"), "requests"), "storage").is_null())
    causes.push_back({"FieldValueRequired", "Required value", "spec.resources[storage]", "", ""});
  Json now = spec, before = old ? json::Field(*old, "spec") : spec;
  for (Json* each : {&now, &before}) {
    if (each->is_object()) each->erase("resources");
  }
  if (now != before)
    causes.push_back({"FieldValueForbidden",
                      "Forbidden: spec is immutable after creation except resources.requests and "
                      "volumeAttributesClassName for bound claims",
                      "spec", "", ""});
  return causes;
}

// Whoever waits for an object to be gone would wait for a finalizer that comes now as well.
std::vector<Cause> CheckFinalizers(const Json& object, const Json* old) {
  if (!old || json::Text((*old)["metadata"], "deletionTimestamp").empty()) return {};
  const Json &before = json::List((*old)["metadata"], "finalizers"),
             &now = json::List(object["metadata"], "finalizers");
  const bool more = std::any_of(now.begin(), now.end(), [&](const Json& each) {
    return std::find(before.begin(), before.end(), each) == before.end();
  });
  if (!more) return {};
  return {{"FieldValueForbidden", "Forbidden: no new finalizers can be added if the object is being deleted",
           "metadata.finalizers", "", ""}};
}

// A built-in kind is decoded into a type of its own before it is looked at: what does not fit is no such object.
ApiResult CannotDecode(const Resource& resource, const Cause& cause) {
  return BadRequest(resource.kind + " in version \"" + resource.version + "\" cannot be handled as a " + resource.kind +
                    ": " + cause.field + ": " + cause.message);
}

}  // namespace

ApiResult StrictDecodingError(const Resource& resource, const std::vector<std::string>& warnings) {
  std::string text;
  for (const std::string& warning : warnings) text += (text.empty() ? "" : ", ") + warning;
  return BadRequest(resource.kind + " in version \"" + resource.version + "\" cannot be handled as a " + resource.kind +
                    ": strict decoding error: " + text);
}

bool HasStatus(const Resource& resource) {
  return resource == kube::kTrainingJobs || resource == kube::kPods || resource == kube::kClaims;
}

ApiResult PrepareCreate(const Resource& resource, const std::string& ns, Json& object) {
  if (!object.is_object()) return BadRequest("the body is no object");
  const std::string kind = json::Text(object, "kind"), version = json::Text(object, "apiVersion");
  if (kind != resource.kind || version != resource.ApiVersion()) {
    return BadRequest("the object's kind is " + version + " " + kind + "; expected " + resource.ApiVersion() + " " +
                      resource.kind);
  }
  Json& metadata = object["metadata"];
  if (!metadata.is_object()) metadata = Json::object();
  if (const std::string own = json::Text(metadata, "namespace"); !own.empty() && own != ns)
    return BadRequest("the namespace of the provided object does not match the namespace sent on the request");
  if (!api::IsDnsLabel(ns)) return Failure(404, "NotFound", "namespaces \"" + ns + "\" not found");
  metadata["namespace"] = ns;
  for (const char* key :
       {"resourceVersion", "deletionTimestamp", "deletionGracePeriodSeconds", "selfLink", "uid", "generation"})
    metadata.erase(key);
  if (HasStatus(resource)) object.erase("status");
  return {};
}

ApiResult CheckName(const Resource& resource, const std::string& name) {
  if (api::IsDnsSubdomain(name)) return {};
  if (name.empty()) {
    return Invalid(
        resource, name,
        {{"FieldValueRequired", "Required value: name or generateName is required", "metadata.name", "", ""}});
  }
  return Invalid(
      resource, name,
      {{"FieldValueInvalid",
        "Invalid value: \"" + name +
            "\": a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '-' or '.'",
        "metadata.name", "", ""}});
}

Json TakeChanges(const Resource& resource, const std::string& subresource, const Json& old, Json next) {
  const Json metadata = std::exchange(next["metadata"], old["metadata"]);
  Json merged = HasStatus(resource) ? old : next;
  if (subresource == "status") {
    Take(merged, next, "status");
  } else {
    if (HasStatus(resource)) Take(merged, next, "spec");
    for (const char* key : {"labels", "annotations", "ownerReferences", "finalizers"})
      Take(merged["metadata"], metadata, key);
  }
  Take(merged["metadata"], metadata, "managedFields");
  return merged;
}

ApiResult Admit(const Resource& resource, const Json* old, bool strict, Json& object) {
  const bool job = resource == kube::kTrainingJobs, pod = resource == kube::kPods, new_pod = pod && !old;
  if (std::vector<Cause> causes = CheckFinalizers(object, old); !causes.empty())
    return Invalid(resource, json::Text(object["metadata"], "name"), causes);
  if (resource == kube::kClaims) {
    if (std::vector<Cause> causes = CheckClaim(object, old); !causes.empty())
      return Invalid(resource, json::Text(object["metadata"], "name"), causes);
    if (!old) object["status"] = {{"phase", "Pending"}};
  }
  if (resource == kube::kServices) {
    DefaultService(object, old);
    std::vector<Cause> causes = CheckMetadata(object["metadata"]);
    if (causes.empty()) causes = CheckService(object, old);
    if (!causes.empty()) return Invalid(resource, json::Text(object["metadata"], "name"), causes);
  }
  if (!job && !pod) return {};
  // The spec of a pod that was stored is not looked at again when only its status or its labels are written.
  const Json* old_spec = pod && old ? &json::Field(*old, "spec") : nullptr;
  const bool new_spec = new_pod || (old_spec && object["spec"] != *old_spec);
  const Json& schema = job ? JobSchema() : PodSchema();
  ApiResult result;
  std::vector<api::UnknownField> unknown = api::Prune(schema, object, "");
  for (api::UnknownField& field : api::Prune(api::MetadataSchema(), object["metadata"], "metadata"))
    unknown.push_back(std::move(field));
  for (const api::UnknownField& field : unknown) result.warnings.push_back("unknown field \"" + field.path + "\"");
  if (strict && !result.warnings.empty()) return StrictDecodingError(resource, result.warnings);
  if (job) api::ApplyDefaults(schema, object);
  std::vector<Cause> causes = api::CheckSchema(schema, object, "");
  if (causes.empty() && (!old || object["metadata"] != (*old)["metadata"])) causes = CheckMetadata(object["metadata"]);
  if (causes.empty() && job) causes = CheckRules(object, old);
  if (causes.empty() && new_spec) {
    DefaultPodSpec(object["spec"]);
    if (object["spec"]["containers"].empty())
      causes.push_back({"FieldValueRequired", "Required value", "spec.containers", "", ""});
    if (old_spec) {
      for (Cause& cause : CheckPodUpdate(*old_spec, object["spec"])) causes.push_back(std::move(cause));
    }
  }
  if (causes.empty() && new_pod) causes = api::CheckPodSpec(object["spec"], "spec");
  for (const Cause& cause : causes) {
    if (pod && cause.reason == "FieldValueTypeInvalid") return CannotDecode(resource, cause);
  }
  if (!causes.empty()) return Invalid(resource, json::Text(object["metadata"], "name"), causes);
  if (new_pod) object["status"] = {{"phase", "Pending"}, {"qosClass", "BestEffort"}};
  return result;
}

std::string UnknownField(const Resource& resource, Json config) {
  if (resource != kube::kTrainingJobs && resource != kube::kPods) return "";
  const std::vector<api::UnknownField> unknown =
      api::Prune(resource == kube::kPods ? PodSchema() : JobSchema(), config, "");
  return unknown.empty() ? "" : unknown.front().path;
}

void ReadBack(const std::string& collection, Json& object) {
  if (collection == kube::kTrainingJobs.plural + "." + kube::kTrainingJobs.group)
    api::ApplyDefaults(JobSchema(), object);
}

const std::vector<std::string>& AtomicMaps(const Resource& resource) {
  static const std::vector<std::string> none, job = [] {
    std::vector<std::string> pointers;
    FindAtomic(JobSchema(), "", pointers);
    return pointers;
  }();
  return resource == kube::kTrainingJobs ? job : none;
}

void RaiseGeneration(const Resource& resource, const Json& old, Json& object) {
  if (resource == kube::kTrainingJobs && json::Field(object, "spec") != json::Field(old, "spec"))
    object["metadata"]["generation"] = json::Whole(old["metadata"], "generation", 1) + 1;
}

}  // namespace trainyard::local
