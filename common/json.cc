#include "common/json.h"

#include <algorithm>

namespace trainyard {
namespace {

// Follows how deep one is in a text that may be no JSON.
class Depth {
 public:
  int Read(char c) {
    if (in_string_) {
      in_string_ = escaped_ || c != '"';
      escaped_ = !escaped_ && c == '\\';
    } else {
      in_string_ = c == '"';
      depth_ += c == '[' || c == '{' ? 1 : c == ']' || c == '}' ? -1 : 0;
    }
    return depth_;
  }

 private:
  int depth_ = 0;
  bool in_string_ = false, escaped_ = false;
};

bool NestsDeeper(std::string_view text, int limit) {
  Depth depth;
  return std::any_of(text.begin(), text.end(), [&](char c) { return depth.Read(c) > limit; });
}

}  // namespace

std::optional<std::string> CutDeeper(std::string_view text, int limit) {
  if (!NestsDeeper(text, limit)) return std::nullopt;
  std::string kept;
  Depth depth;
  int before = 0;
  for (const char c : text) {
    const int now = depth.Read(c);
    if (before == limit && now > limit) kept += "null";
    if (before <= limit && now <= limit) kept += c;
    before = now;
  }
  return kept;
}

nlohmann::json ParseJson(std::string_view text) {
  if (NestsDeeper(text, kJsonDepth)) return nlohmann::json(nlohmann::json::value_t::discarded);
  return nlohmann::json::parse(text, nullptr, false);
}

}  // namespace trainyard
