#include "operator/kube/parse_object.h"

#include <algorithm>

#include "common/json.h"
#include "operator/base/json_access.h"

namespace trainyard::kube {
namespace {

// Behind the text that begins at `begin` with a quote; npos when it has no end.
size_t TextEnd(std::string_view text, size_t begin) {
  for (size_t end = text.find('"', begin + 1); end != std::string_view::npos; end = text.find('"', end + 1)) {
    size_t escapes = 0;
    while (text[end - 1 - escapes] == '\\') ++escapes;
    if (escapes % 2 == 0) return end + 1;
  }
  return std::string_view::npos;
}

// Behind the list or object that begins at `begin`; npos when it never closes.
size_t ValueEnd(std::string_view text, size_t begin) {
  int depth = 0;
  for (size_t i = begin; i < text.size(); ++i) {
    const char c = text[i];
    if (c == '"') {
      i = TextEnd(text, i);
      if (i == std::string_view::npos) return i;
      --i;
    } else if (c == '{' || c == '[') {
      ++depth;
    } else if ((c == '}' || c == ']') && --depth == 0) {
      return i + 1;
    }
  }
  return std::string_view::npos;
}

}  // namespace

ObjectParser::ObjectParser(int around, const FieldPaths& unread) : limit_(kJsonDepth - 1 + around), around_(around) {
  FieldPaths all = unread;
  all.emplace_back("metadata.managedFields");
  for (std::string path : all) {
    const size_t equals = path.find('=');
    auto& [keys, read] = paths_.emplace_back();
    if (equals != std::string::npos) read = '"' + path.substr(equals + 1) + '"';
    path.resize(std::min(equals, path.size()));
    if (around_ == 1) keys.emplace_back("object");
    for (size_t begin = 0, end = 0; end != std::string::npos; begin = end + 1) {
      end = path.find('.', begin);
      keys.push_back(path.substr(begin, end - begin));
    }
  }
}

// The paths that are alive in `in` and go on with `key`.
ObjectParser::Alive ObjectParser::Follow(const Open& in, std::string_view key) const {
  Alive alive = 0;
  for (size_t i = 0; i < paths_.size() && in.alive != 0; ++i) {
    const std::vector<std::string>& keys = paths_[i].keys;
    if ((in.alive >> i & 1) == 1 && in.level <= keys.size() && keys[in.level - 1] == key) alive |= Alive{1} << i;
  }
  return alive;
}

const ObjectParser::Path* ObjectParser::Ended(Alive alive, size_t level) const {
  for (size_t i = 0; i < paths_.size() && alive != 0; ++i) {
    if ((alive >> i & 1) == 1 && paths_[i].keys.size() == level) return &paths_[i];
  }
  return nullptr;
}

bool ObjectParser::Shorten(std::string_view text) {
  open_.clear();
  shorter_.clear();
  cut_ = false;
  size_t kept = 0;                                                // what is before it is in shorter_, or was left out
  Open next{.is_object = false, .level = 0, .alive = ~Alive{0}};  // for what begins here
  bool key = false;                                               // comes next
  for (size_t i = 0; i < text.size(); ++i) {
    const char c = text[i];
    if (c == '"') {
      const size_t end = TextEnd(text, i);
      if (end == std::string_view::npos) return false;
      if (key) next.alive = Follow(open_.back(), text.substr(i + 1, end - i - 2));
      key = false;
      i = end - 1;
    } else if (c == '{' || c == '[') {
      const Open* in = open_.empty() ? nullptr : &open_.back();
      const Path* path = in && in->is_object ? Ended(next.alive, in->level) : nullptr;
      const bool some = path && c == '[' && !path->read.empty(), unread = path && !some;
      const bool deep = open_.size() == static_cast<size_t>(limit_), item = in && in->of;
      const size_t end = unread || deep || item ? ValueEnd(text, i) : i;
      if (end == std::string_view::npos) return false;
      const bool passed = item && text.substr(i, end - i).find(in->of->read) == std::string_view::npos;
      if (unread || deep || passed) {
        shorter_.append(text, kept, i - kept).append(unread ? (c == '{' ? "{}" : "[]") : "null");
        cut_ |= !unread && !passed;
        kept = end;
        i = end - 1;
        continue;
      }
      const size_t level = (in ? in->level : 0) + (c == '{' ? 1 : 0);
      open_.push_back({.is_object = c == '{', .level = level, .alive = next.alive, .of = some ? path : nullptr});
      key = c == '{';
    } else if (c == '}' || c == ']') {
      if (open_.empty()) return false;
      open_.pop_back();
      key = false;
    } else if (c == ',' && !open_.empty()) {
      key = open_.back().is_object;
      next.alive = open_.back().alive;
    }
  }
  if (kept > 0) shorter_.append(text, kept);
  return open_.empty();
}

nlohmann::json ObjectParser::Parse(std::string_view text) {
  if (!Shorten(text)) return nlohmann::json(nlohmann::json::value_t::discarded);
  nlohmann::json value = nlohmann::json::parse(shorter_.empty() ? text : shorter_, nullptr, false);
  nlohmann::json* object = &value;
  if (cut_ && around_ == 1 && value.contains("object")) object = &value["object"];
  if (cut_ && object->is_object()) (*object)[json::kCut] = true;
  return value;
}

}  // namespace trainyard::kube
