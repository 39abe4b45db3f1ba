// How deep an object of the in-memory API may nest, and a JSON patch that cannot make more of it than that.
#ifndef TRAINYARD_OPERATOR_LOCAL_API_OBJECT_LIMITS_H_
#define TRAINYARD_OPERATOR_LOCAL_API_OBJECT_LIMITS_H_

#include <cstddef>

#include "common/json.h"
#include "operator/local/api/api_result.h"

namespace trainyard::local {

// Of lists and objects in each other. Less than what can be read: an object stands in others where it is kept (three
// levels down in api.json), watched and listed.
constexpr int kObjectDepth = kJsonDepth - 10;
// As kube-apiserver.
constexpr size_t kPatchOperations = 10000;
// Of the JSON text of all that a patch's `copy` and `move` take.
constexpr size_t kCopiedBytes = 8 << 20;

// Whether there are more than `levels`. Goes no deeper than that.
bool NestsDeeper(const Json& value, int levels);

// 422 that names the limit when the object nests deeper than kObjectDepth. `old` (null: none) may do so as well: an
// earlier version let it in.
ApiResult CheckDepth(const Resource& resource, const Json* old, const Json& object);

// RFC 6902, an operation at a time: between two of them nothing is larger than the limits. 413 for too many
// operations and too much copied, 422 for what nests too deep or cannot be done; `document` is then worth nothing.
ApiResult JsonPatch(const Resource& resource, const std::string& name, const Json& patch, Json& document);

}  // namespace trainyard::local

#endif  // TRAINYARD_OPERATOR_LOCAL_API_OBJECT_LIMITS_H_
