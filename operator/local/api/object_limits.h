// How deep an object of the in-memory API may nest and how large it may be, and a JSON patch that cannot make more of
// it than that, or take long.
#ifndef TRAINYARD_OPERATOR_LOCAL_API_OBJECT_LIMITS_H_
#define TRAINYARD_OPERATOR_LOCAL_API_OBJECT_LIMITS_H_

#include <cstddef>

#include "common/json.h"
#include "operator/local/api/api_result.h"

namespace trainyard::local {

// Of lists and objects in each other. Less than what can be read: an object stands in others where it is kept (three
// levels down in api.json), watched and listed.
constexpr int kObjectDepth = kJsonDepth - 10;
// About what etcd takes.
constexpr size_t kObjectBytes = 3 << 19;
// As kube-apiserver.
constexpr size_t kPatchOperations = 10000;
// Of the JSON text of all that a patch's `copy` and `move` take.
constexpr size_t kCopiedBytes = 8 << 20;

// Of lists, that change their places because a patch's operations put something before them, or take it away.
constexpr size_t kShiftedItems = 16 << 20;

// About as many bytes as the value has as JSON text; stops counting beyond `most`.
size_t Weight(const Json& value, size_t most);

// Whether there are more than `levels`. Goes no deeper than that.
bool NestsDeeper(const Json& value, int levels);

// 422 that names the limit when the object nests deeper than kObjectDepth. `old` (null: none) may do so as well: an
// earlier version let it in.
ApiResult CheckDepth(const Resource& resource, const Json* old, const Json& object);

// 413 when the object is larger than kObjectBytes, and than `old` (null: none), which an earlier version let in.
ApiResult CheckBytes(const Json* old, const Json& object);

// RFC 6902, an operation at a time: between two of them nothing is larger than the limits. 413 for too many
// operations, too much copied and too much shifted, 422 for what nests too deep or cannot be done; `document` is then
// worth nothing.
ApiResult JsonPatch(const Resource& resource, const std::string& name, const Json& patch, Json& document);

}  // namespace trainyard::local

#endif  // TRAINYARD_OPERATOR_LOCAL_API_OBJECT_LIMITS_H_
