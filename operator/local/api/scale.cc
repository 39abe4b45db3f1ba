#include "operator/local/api/scale.h"

#include "operator/api/crd.h"
#include "operator/base/json_access.h"
#include "operator/local/api/object_limits.h"
#include "operator/local/api/object_path.h"

namespace trainyard::local {
namespace {

// The CRD's paths; null when there are none.
const Json& Paths(const Resource& resource) {
  static const Json crd = api::CustomResourceDefinition(), none;
  if (resource != kube::kTrainingJobs) return none;
  return json::Field(json::Field(crd["spec"]["versions"][0], "subresources"), "scale");
}

Json ScaleOf(const Json& object, const Json& paths) {
  const Json& metadata = object["metadata"];
  Json scale = {{"kind", "Scale"}, {"apiVersion", "autoscaling/v1"}, {"metadata", Json::object()}};
  for (const char* key : {"name", "namespace", "uid", "resourceVersion", "creationTimestamp"})
    scale["metadata"][key] = json::Field(metadata, key);
  scale["spec"]["replicas"] = AtPath(object, json::Text(paths, "specReplicasPath"));
  const Json now = AtPath(object, json::Text(paths, "statusReplicasPath"));
  scale["status"]["replicas"] = now.is_null() ? Json(0) : now;
  if (const Json selector = AtPath(object, json::Text(paths, "labelSelectorPath")); selector.is_string())
    scale["status"]["selector"] = selector;
  return scale;
}

}  // namespace

ApiResult GetScale(const MemoryApi& api, const Resource& resource, const std::string& ns, const std::string& name) {
  ApiResult object = api.Get(resource, ns, name);
  if (!object.ok()) return object;
  if (Paths(resource).is_null()) return NoSuchPath();
  object.body = ScaleOf(object.body, Paths(resource));
  return object;
}

ApiResult PutScale(MemoryApi& api, const Resource& resource, const std::string& ns, const std::string& name,
                   const Json& scale, const WriteRequest& request) {
  const Json& paths = Paths(resource);
  if (paths.is_null()) return NoSuchPath();
  const Json& replicas = json::Field(json::Field(scale, "spec"), "replicas");
  if (!replicas.is_number_integer()) return BadRequest("spec.replicas: allowed: an integer");
  Json patch = Json::object();
  patch[PathPointer(json::Text(paths, "specReplicasPath"))] = replicas;
  // Someone else's write in between is a conflict for those who say what they have seen.
  const Json& metadata = json::Field(scale, "metadata");
  if (const std::string version = json::Text(metadata, "resourceVersion"); !version.empty())
    patch["metadata"]["resourceVersion"] = version;
  ApiResult result = api.Patch(resource, ns, name, "", PatchType::kMerge, patch, request);
  if (result.ok()) result.body = ScaleOf(result.body, paths);
  return result;
}

ApiResult PatchScale(MemoryApi& api, const Resource& resource, const std::string& ns, const std::string& name,
                     PatchType type, const Json& patch, const WriteRequest& request) {
  ApiResult scale = GetScale(api, resource, ns, name);
  if (!scale.ok()) return scale;
  if (type == PatchType::kJson) {
    if (ApiResult wrong = JsonPatch(resource, name, patch, scale.body); !wrong.ok()) return wrong;
  } else {
    scale.body.merge_patch(patch);
  }
  return PutScale(api, resource, ns, name, scale.body, request);
}

}  // namespace trainyard::local
