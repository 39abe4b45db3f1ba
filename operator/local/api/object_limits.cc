#include "operator/local/api/object_limits.h"

#include <algorithm>
#include <utility>

#include "operator/base/json_access.h"

namespace trainyard::local {
namespace {

// An object of an earlier version can still be written, as long as it can be read: it stands in three others.
constexpr int kReadableDepth = kJsonDepth - 3;

ApiResult TooDeep(const Resource& resource, const std::string& name) {
  return Invalid(
      resource, name,
      {{"FieldValueInvalid",
        "Invalid value: \"object\": more than " + std::to_string(kObjectDepth) + " lists and objects in each other",
        "<nil>", "", ""}});
}

ApiResult TooMuch(const std::string& message) { return Failure(413, "RequestEntityTooLarge", message); }

// In kube-apiserver's words; which operation it was it does not tell either.
ApiResult CannotBeDone() {
  return Failure(422, "Invalid", "the server rejected our request due to an error in our request");
}

// About as many bytes as the value has as JSON text; stops counting beyond `most`.
size_t Weight(const Json& value, size_t most) {
  size_t weight = value.is_string() ? value.get_ref<const std::string&>().size() + 3 : 5;
  if (!value.is_structured()) return weight;
  for (const auto& [key, inner] : value.items()) {
    if (weight > most) break;
    weight += (value.is_object() ? key.size() + 4 : 0) + Weight(inner, most);
  }
  return weight;
}

// The library takes it for granted that a value goes into a list or an object.
bool HasPlace(const Json& document, const Json::json_pointer& path) {
  if (path.empty()) return true;
  const Json& parent = document.at(path.parent_pointer());
  return parent.is_structured() || parent.is_null();
}

// Levels above what the pointer names.
int Levels(const std::string& pointer) { return static_cast<int>(std::count(pointer.begin(), pointer.end(), '/')); }

}  // namespace

bool NestsDeeper(const Json& value, int levels) {
  if (!value.is_structured()) return false;
  if (levels == 0) return true;
  return std::any_of(value.begin(), value.end(),
                     [levels](const Json& inner) { return NestsDeeper(inner, levels - 1); });
}

ApiResult CheckDepth(const Resource& resource, const Json* old, const Json& object) {
  const bool earlier = old && NestsDeeper(*old, kObjectDepth);
  return NestsDeeper(object, earlier ? kReadableDepth : kObjectDepth)
             ? TooDeep(resource, json::Text(json::Field(object, "metadata"), "name"))
             : ApiResult{};
}

ApiResult JsonPatch(const Resource& resource, const std::string& name, const Json& patch, Json& document) {
  if (!patch.is_array()) return BadRequest("the patch is no list of operations");
  if (patch.size() > kPatchOperations)
    return TooMuch("The allowed maximum operations in a JSON patch is " + std::to_string(kPatchOperations) + ", got " +
                   std::to_string(patch.size()));
  size_t copied = 0;
  try {
    for (const Json& operation : patch) {
      const std::string op = json::Text(operation, "op");
      const bool takes = op == "copy" || op == "move";
      const Json& value = takes ? std::as_const(document).at(Json::json_pointer(json::Text(operation, "from")))
                                : json::Field(operation, "value");
      if (takes) copied += Weight(value, kCopiedBytes);
      if (copied > kCopiedBytes)
        return TooMuch("The operations copy and move of a JSON patch may take " + std::to_string(kCopiedBytes) +
                       " bytes in all");
      // Whatever an operation makes deeper, it does where it puts its value.
      if (NestsDeeper(value, std::max(0, kObjectDepth - Levels(json::Text(operation, "path")))) && op != "test")
        return TooDeep(resource, name);
      if (op != "test" && !HasPlace(document, Json::json_pointer(json::Text(operation, "path")))) return CannotBeDone();
      document.patch_inplace(Json::array({operation}));
    }
  } catch (const Json::exception&) {
    return CannotBeDone();
  }
  return {};
}

}  // namespace trainyard::local
