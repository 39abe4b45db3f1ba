#include "operator/local/api/object_limits.h"

#include <algorithm>
#include <cstdint>
#include <cstdlib>
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

// The library takes it for granted that a value goes into a list or an object.
bool HasPlace(const Json& document, const Json::json_pointer& path) {
  if (path.empty()) return true;
  const Json& parent = document.at(path.parent_pointer());
  return parent.is_structured() || parent.is_null();
}

// How many items of a list change their places when something comes or goes at `path`.
size_t Shifted(const Json& document, const Json::json_pointer& path) {
  if (path.empty()) return 0;
  const Json& parent = document.at(path.parent_pointer());
  if (!parent.is_array() || path.back() == "-") return 0;
  const size_t place = std::strtoull(path.back().c_str(), nullptr, 10);  // the library reads it strictly
  return parent.size() - std::min(parent.size(), place);
}

// Levels above what the pointer names.
int Levels(const std::string& pointer) { return static_cast<int>(std::count(pointer.begin(), pointer.end(), '/')); }

// Does what a JSON patch says, an operation at a time.
class Patcher {
 public:
  Patcher(const Resource& resource, const std::string& name, Json& document)
      : resource_(resource), name_(name), document_(document) {}

  ApiResult Do(const Json& operation) {
    const std::string op = json::Text(operation, "op"), from = json::Text(operation, "from");
    const std::string path = json::Text(operation, "path");
    const bool takes = op == "copy" || op == "move";
    if (!takes) return Put(op, operation, json::Field(operation, "value"));
    // What goes into itself is nowhere (RFC 6902, 4.4).
    const bool into_itself = op == "move" && path.starts_with(from + "/");
    if (into_itself || !json::Field(operation, "from").is_string()) return CannotBeDone();
    const Json& value = std::as_const(document_).at(Json::json_pointer(from));
    copied_ += Weight(value, kCopiedBytes);
    if (copied_ > kCopiedBytes)
      return TooMuch("The operations copy and move of a JSON patch may take " + std::to_string(kCopiedBytes) +
                     " bytes in all");
    if (op == "copy") return Put("copy", operation, value);
    const Json remove = {{"op", "remove"}, {"path", from}};
    const Json add = {{"op", "add"}, {"path", json::Field(operation, "path")}, {"value", value}};
    if (ApiResult wrong = Put("remove", remove, Json()); !wrong.ok()) return wrong;
    return Put("add", add, add["value"]);
  }

 private:
  // An `operation` of one step; `value`: what it puts.
  ApiResult Put(const std::string& op, const Json& operation, const Json& value) {
    const std::string path = json::Text(operation, "path");
    if (op != "test") {
      // Whatever an operation makes deeper, it does where it puts its value.
      if (NestsDeeper(value, std::max(0, kObjectDepth - Levels(path)))) return TooDeep(resource_, name_);
      const Json::json_pointer place(path);
      if (!HasPlace(document_, place)) return CannotBeDone();
      if (op != "replace") shifted_ += Shifted(document_, place);
      if (shifted_ > kShiftedItems)
        return TooMuch("The operations of a JSON patch may shift " + std::to_string(kShiftedItems) +
                       " items of lists in all");
    }
    document_.patch_inplace(Json::array({operation}));
    return {};
  }

  const Resource& resource_;
  const std::string& name_;
  Json& document_;
  size_t copied_ = 0, shifted_ = 0;
};

}  // namespace

size_t Weight(const Json& value, size_t most) {
  size_t weight = value.is_string() ? value.get_ref<const std::string&>().size() + 3 : 5;
  if (!value.is_structured()) return weight;
  for (auto inner = value.begin(); inner != value.end() && weight <= most; ++inner)
    weight += (value.is_object() ? inner.key().size() + 4 : 0) + Weight(*inner, most);
  return weight;
}

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

ApiResult CheckBytes(const Json* old, const Json& object) {
  const size_t most = std::max(kObjectBytes, old ? Weight(*old, SIZE_MAX) : 0);
  return Weight(object, most) > most
             ? TooMuch("an object may have about " + std::to_string(kObjectBytes) + " bytes of JSON text")
             : ApiResult{};
}

ApiResult JsonPatch(const Resource& resource, const std::string& name, const Json& patch, Json& document) {
  if (!patch.is_array()) return BadRequest("the patch is no list of operations");
  if (patch.size() > kPatchOperations)
    return TooMuch("The allowed maximum operations in a JSON patch is " + std::to_string(kPatchOperations) + ", got " +
                   std::to_string(patch.size()));
  Patcher patcher(resource, name, document);
  try {
    for (const Json& operation : patch) {
      if (ApiResult wrong = patcher.Do(operation); !wrong.ok()) return wrong;
    }
  } catch (const Json::exception&) {
    return CannotBeDone();
  }
  return {};
}

}  // namespace trainyard::local
