// The scale subresource: how many replicas, whatever the kind calls them.
// Source: autoscaling/v1 Scale; the paths are the CRD's spec.versions[].subresources.scale.
#ifndef TRAINYARD_OPERATOR_LOCAL_API_SCALE_H_
#define TRAINYARD_OPERATOR_LOCAL_API_SCALE_H_

#include <string>

#include "operator/local/api/memory_api.h"

namespace trainyard::local {

// The object as a Scale; 404 where there is no object, or its kind has no such subresource.
ApiResult GetScale(const MemoryApi& api, const Resource& resource, const std::string& ns, const std::string& name);
// Sets spec.replicas of `scale`; answers with the Scale. Errors are those of a write of the object.
ApiResult PutScale(MemoryApi& api, const Resource& resource, const std::string& ns, const std::string& name,
                   const Json& scale, const WriteRequest& request);
// The same with a patch of the Scale.
ApiResult PatchScale(MemoryApi& api, const Resource& resource, const std::string& ns, const std::string& name,
                     PatchType type, const Json& patch, const WriteRequest& request);

}  // namespace trainyard::local

#endif  // TRAINYARD_OPERATOR_LOCAL_API_SCALE_H_
