#include "common/json.h"

#include <algorithm>

namespace trainyard {
namespace {

bool NestsDeeper(std::string_view text, int limit) {
  JsonDepth depth;
  return std::any_of(text.begin(), text.end(), [&](char c) {
    depth.Read(c);
    return depth.depth() > limit;
  });
}

}  // namespace

std::optional<std::string> CutDeeper(std::string_view text, int limit) {
  if (!NestsDeeper(text, limit)) return std::nullopt;
  std::string kept;
  JsonDepth depth;
  for (const char c : text) {
    const int before = depth.depth();
    depth.Read(c);
    const int now = depth.depth();
    if (before == limit && now > limit) kept += "null";
    if (before <= limit && now <= limit) kept += c;
  }
  return kept;
}

nlohmann::json ParseJson(std::string_view text) {
  if (NestsDeeper(text, kJsonDepth)) return nlohmann::json(nlohmann::json::value_t::discarded);
  return nlohmann::json::parse(text, nullptr, false);
}

}  // namespace trainyard
