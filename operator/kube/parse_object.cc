#include "operator/kube/parse_object.h"

#include <optional>
#include <string>

#include "common/json.h"

namespace trainyard::kube {
namespace {

// As API servers write it. Within a text, its quotes would have backslashes.
constexpr std::string_view kKey = "\"managedFields\":[";

// How deep one is in a text, read from its begin; the text may be no JSON.
class Depth {
 public:
  void Read(std::string_view text) {
    for (const char c : text) Read(c);
  }
  void Read(char c) {
    if (in_string_) {
      in_string_ = escaped_ || c != '"';
      escaped_ = !escaped_ && c == '\\';
      return;
    }
    in_string_ = c == '"';
    if (c == '{' || c == '[') ++depth_;
    if (c == '}' || c == ']') --depth_;
  }
  bool At(int depth) const { return !in_string_ && depth_ == depth; }

 private:
  int depth_ = 0;
  bool in_string_ = false, escaped_ = false;
};

// Where the list that opens before `begin` closes.
std::optional<size_t> Closes(std::string_view text, size_t begin) {
  Depth depth;
  depth.Read('[');
  for (size_t i = begin; i < text.size(); ++i) {
    depth.Read(text[i]);
    if (depth.At(0)) return i;
  }
  return std::nullopt;
}

}  // namespace

nlohmann::json ParseObject(std::string_view text, int around) {
  const size_t key = text.find(kKey);
  if (key == std::string_view::npos) return ParseJson(text);
  Depth depth;
  depth.Read(text.substr(0, key));
  const size_t begin = key + kKey.size();
  const std::optional<size_t> end = Closes(text, begin);
  if (!depth.At(around + 2) || !end) return ParseJson(text);
  std::string rest(text.substr(0, begin));
  rest += text.substr(*end);
  return ParseJson(rest);
}

}  // namespace trainyard::kube
