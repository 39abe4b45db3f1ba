#include "operator/kube/parse_object.h"

#include <optional>
#include <string>

#include "common/json.h"
#include "operator/base/json_access.h"

namespace trainyard::kube {
namespace {

// As API servers write it. Within a text, its quotes would have backslashes.
constexpr std::string_view kKey = "\"managedFields\":[";

// Where the list that opens before `begin` closes.
std::optional<size_t> Closes(std::string_view text, size_t begin) {
  JsonDepth depth;
  for (size_t i = begin; i < text.size(); ++i) {
    depth.Read(text[i]);
    if (depth.depth() < 0) return i;
  }
  return std::nullopt;
}

// The object may have one level less than a text, so that it is the same in a list and in a watch.
nlohmann::json ParseCut(std::string_view text, int around) {
  const std::optional<std::string> cut = CutDeeper(text, kJsonDepth - 1 + around);
  nlohmann::json value = nlohmann::json::parse(cut ? *cut : text, nullptr, false);  // which nests no deeper any more
  nlohmann::json* object = &value;
  if (cut && around == 1 && value.contains("object")) object = &value["object"];
  if (cut && object->is_object()) (*object)[json::kCut] = true;
  return value;
}

}  // namespace

nlohmann::json ParseObject(std::string_view text, int around) {
  const size_t key = text.find(kKey);
  if (key == std::string_view::npos) return ParseCut(text, around);
  JsonDepth depth;
  for (const char c : text.substr(0, key)) depth.Read(c);
  const size_t begin = key + kKey.size();
  const std::optional<size_t> end = Closes(text, begin);
  if (depth.in_string() || depth.depth() != around + 2 || !end) return ParseCut(text, around);
  std::string rest(text.substr(0, begin));
  rest += text.substr(*end);
  return ParseCut(rest, around);
}

}  // namespace trainyard::kube
