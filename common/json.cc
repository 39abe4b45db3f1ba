#include "common/json.h"

namespace trainyard {
namespace {

// Of a text that may be no JSON: the parser sees to that.
bool NestsDeeper(std::string_view text, int limit) {
  int depth = 0;
  bool in_string = false;
  for (size_t i = 0; i < text.size(); ++i) {
    const char c = text[i];
    if (c == '"') in_string = !in_string;
    if (in_string && c == '\\') ++i;
    if (in_string) continue;
    if ((c == '[' || c == '{') && ++depth > limit) return true;
    if (c == ']' || c == '}') --depth;
  }
  return false;
}

}  // namespace

nlohmann::json ParseJson(std::string_view text) {
  if (NestsDeeper(text, kJsonDepth)) return nlohmann::json(nlohmann::json::value_t::discarded);
  return nlohmann::json::parse(text, nullptr, false);
}

}  // namespace trainyard
