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

nlohmann::json ParseJson(std::string_view text) {
  if (NestsDeeper(text, kJsonDepth)) return nlohmann::json(nlohmann::json::value_t::discarded);
  return nlohmann::json::parse(text, nullptr, false);
}

}  // namespace trainyard
