// JSON that others wrote, for both programs.
#ifndef TRAINYARD_COMMON_JSON_H_
#define TRAINYARD_COMMON_JSON_H_

#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <string_view>

namespace trainyard {

constexpr int kJsonDepth = 100;  // of lists and objects in each other, as in YAML (yaml.h)

// The value of a text; discarded (`is_discarded()`) when it is not JSON, or nests deeper: whoever copies, compares or
// prints a value goes down into it by recursion, and a few bytes a level would end the process. Never throws.
nlohmann::json ParseJson(std::string_view text);

// `text` with null in the place of each list and object that nests deeper than `limit`; nothing when none does. Of a
// text that is no JSON nothing is promised but an end.
std::optional<std::string> CutDeeper(std::string_view text, int limit);

}  // namespace trainyard

#endif  // TRAINYARD_COMMON_JSON_H_
