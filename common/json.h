// JSON that others wrote, for both programs.
#ifndef TRAINYARD_COMMON_JSON_H_
#define TRAINYARD_COMMON_JSON_H_

#include <nlohmann/json.hpp>
#include <string_view>

namespace trainyard {

// Follows how deep one is in a text that is read from its begin, character by character; it may be no JSON.
class JsonDepth {
 public:
  void Read(char c) {
    if (in_string_) {
      in_string_ = escaped_ || c != '"';
      escaped_ = !escaped_ && c == '\\';
      return;
    }
    in_string_ = c == '"';
    depth_ += c == '[' || c == '{' ? 1 : c == ']' || c == '}' ? -1 : 0;
  }
  // Of lists and objects in each other; below 0 where more close than open.
  int depth() const { return depth_; }
  bool in_string() const { return in_string_; }

 private:
  int depth_ = 0;
  bool in_string_ = false, escaped_ = false;
};

constexpr int kJsonDepth = 100;  // of lists and objects in each other, as in YAML (yaml.h)

// The value of a text; discarded (`is_discarded()`) when it is not JSON, or nests deeper: whoever copies, compares or
// prints a value goes down into it by recursion, and a few bytes a level would end the process. Never throws.
nlohmann::json ParseJson(std::string_view text);

}  // namespace trainyard

#endif  // TRAINYARD_COMMON_JSON_H_
