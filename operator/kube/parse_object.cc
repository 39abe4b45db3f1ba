#include "operator/kube/parse_object.h"

#include <algorithm>

#include "common/json.h"
#include "operator/base/json_access.h"

namespace trainyard::kube {
namespace {

using Json = nlohmann::json;

constexpr size_t kNowhere = std::string_view::npos;
constexpr char kSpace[] = " \t\r\n";

// Behind the text that begins at `begin` with a quote; kNowhere when it has no end.
size_t TextEnd(std::string_view text, size_t begin) {
  for (size_t end = text.find('"', begin + 1); end != kNowhere; end = text.find('"', end + 1)) {
    size_t escapes = 0;
    while (text[end - 1 - escapes] == '\\') ++escapes;
    if (escapes % 2 == 0) return end + 1;
  }
  return kNowhere;
}

// Behind the value that begins at `begin`; kNowhere when it has no end.
size_t ValueEnd(std::string_view text, size_t begin) {
  int depth = 0;
  for (size_t i = begin; i < text.size(); ++i) {
    const char c = text[i];
    if (c == '"') {
      i = TextEnd(text, i);
      if (i == kNowhere || depth == 0) return i;
      --i;
    } else if (c == '{' || c == '[') {
      ++depth;
    } else if (c == '}' || c == ']') {
      if (depth == 0) return i > begin ? i : kNowhere;
      if (--depth == 0) return i + 1;
    } else if (depth == 0 && (c == ',' || std::string_view(kSpace).find(c) != kNowhere)) {
      return i > begin ? i : kNowhere;
    }
  }
  return depth == 0 && begin < text.size() ? text.size() : kNowhere;
}

// Whether it stands for itself, between its quotes.
bool IsPlainText(std::string_view token) {
  return token.size() >= 2 && token.front() == '"' &&
         std::all_of(token.begin(), token.end(), [](char c) { return c >= ' ' && c <= '~' && c != '\\'; });
}

// Whether it may be a number, true, false or null: whoever reads those takes some characters before and behind them for
// nothing.
bool IsWord(std::string_view token) {
  return std::all_of(token.begin(), token.end(), [](char c) {
    return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'z') || c == 'E' || c == '+' || c == '-' || c == '.';
  });
}

std::vector<std::string> Split(std::string_view path) {
  std::vector<std::string> keys;
  for (size_t begin = 0, end = 0; end != kNowhere; begin = end + 1) {
    end = path.find('.', begin);
    keys.emplace_back(path.substr(begin, end - begin));
  }
  return keys;
}

}  // namespace

const ObjectParser::Node* ObjectParser::Node::Find(std::string_view name) const {
  const auto found = std::find_if(children.begin(), children.end(), [&](const Node& node) { return node.key == name; });
  return found == children.end() ? nullptr : &*found;
}

ObjectParser::Node& ObjectParser::Node::Child(std::string_view name) {
  for (Node& child : children) {
    if (child.key == name) return child;
  }
  children.emplace_back().key = name;
  return children.back();
}

// All that is read there, or of the items of a list there those that hold `item`. Where some items are read, and
// something of each, all of it is.
void ObjectParser::Node::Read(const std::vector<std::string>& keys, const std::string& item) {
  Node* node = this;
  for (const std::string& key : keys) {
    if (!node->items.empty()) return node->ReadAll();
    node = &node->Child(key);
    if (node->whole()) return;
  }
  const bool fresh = !node->others && node->children.empty();
  if (item.empty() || (!fresh && node->items.empty())) return node->ReadAll();
  node->others = true;
  node->items.push_back('"' + item + '"');
}

void ObjectParser::Node::ReadAll() {
  others = true;
  items.clear();
  children.clear();
}

ObjectParser::ObjectParser(int around, const FieldPaths& fields) : limit_(kJsonDepth - 1 + around), around_(around) {
  root_.others = true;
  if (around_ == 1) root_.Child("object").others = true;
  Node& object = around_ == 1 ? root_.Child("object") : root_;
  for (const std::string& path : fields) {
    const size_t equals = path.find('=');
    object.Read(Split(std::string_view(path).substr(0, equals)),
                equals == std::string::npos ? "" : path.substr(equals + 1));
  }
  const Node* restricted = object.Find("metadata");
  Node& metadata = object.Child("metadata");
  if (!restricted) metadata.others = true;
  if (metadata.others) metadata.Child("managedFields").left_out = true;
  if (around_ == 1 && !metadata.others) {
    metadata.Read({"resourceVersion"}, "");
    metadata.Read({"annotations", kInitialEventsEnd}, "");
  }
}

size_t ObjectParser::Token(size_t at) const {
  while (at < text_.size() && std::string_view(kSpace).find(text_[at]) != kNowhere) ++at;
  return at;
}

bool ObjectParser::More(size_t& at) const {
  at = Token(at);
  if (At(at) != ',') return false;
  at = Token(at + 1);
  return true;
}

size_t ObjectParser::Value(size_t at, const Node& node, int depth, Json& value) {
  const char first = At(at);
  if (first != '{' && first != '[') return Scalar(at, value);
  if (depth == limit_) {
    cut_ = true;
    return ValueEnd(text_, at);
  }
  return first == '{' ? Fields(at, node, depth, value) : Items(at, node, depth, value);
}

size_t ObjectParser::Scalar(size_t at, Json& value) const {
  const size_t end = ValueEnd(text_, at);
  if (end == kNowhere) return end;
  const std::string_view token = text_.substr(at, end - at);
  if (IsPlainText(token)) {
    value = std::string(token.substr(1, token.size() - 2));
    return end;
  }
  if (token.front() != '"' && !IsWord(token)) return kNowhere;
  value = Json::parse(token, nullptr, false);
  return value.is_discarded() ? kNowhere : end;
}

size_t ObjectParser::Fields(size_t at, const Node& node, int depth, Json& value) {
  value = Json::object();
  auto& fields = value.get_ref<Json::object_t&>();
  size_t i = Token(at + 1);
  for (bool more = At(i) != '}'; more;) {
    if (At(i) != '"') return kNowhere;
    const size_t key_end = TextEnd(text_, i);
    if (key_end == kNowhere) return key_end;
    const std::string_view key = text_.substr(i + 1, key_end - i - 2);
    const Node* child = node.Find(key);
    if (!child && node.others) child = &all_;
    Json name, field;
    if (child && !child->left_out && Scalar(i, name) == kNowhere) return kNowhere;
    i = Token(key_end);
    if (At(i) != ':') return kNowhere;
    i = Token(i + 1);
    if (name.is_string()) {
      i = Value(i, *child, depth + 1, field);
      // They come in the order of their names, mostly; of two of one name the last counts.
      fields.insert_or_assign(fields.end(), std::move(name.get_ref<std::string&>()), std::move(field));
    } else {
      i = ValueEnd(text_, i);
    }
    if (i == kNowhere) return i;
    more = More(i);
  }
  return At(i) == '}' ? i + 1 : kNowhere;
}

size_t ObjectParser::Items(size_t at, const Node& node, int depth, Json& value) {
  const auto is_read = [&](std::string_view item) {
    return std::any_of(node.items.begin(), node.items.end(),
                       [&](const std::string& held) { return item.find(held) != kNowhere; });
  };
  value = Json::array();
  size_t i = Token(at + 1);
  for (bool more = At(i) != ']'; more;) {
    const size_t end = node.items.empty() ? i : ValueEnd(text_, i);
    if (end == kNowhere) return end;
    if (node.items.empty() || is_read(text_.substr(i, end - i))) {
      value.emplace_back();
      i = Value(i, node.items.empty() ? node : all_, depth + 1, value.back());
      if (i == kNowhere) return i;
    } else {
      i = end;
    }
    more = More(i);
  }
  return At(i) == ']' ? i + 1 : kNowhere;
}

nlohmann::json ObjectParser::Parse(std::string_view text) {
  text_ = text;
  cut_ = false;
  Json value;
  const size_t end = Value(Token(0), root_, 0, value);
  if (end == kNowhere || Token(end) != text.size()) return Json(Json::value_t::discarded);
  Json* object = &value;
  if (cut_ && around_ == 1 && value.contains("object")) object = &value["object"];
  if (cut_ && object->is_object()) (*object)[json::kCut] = true;
  return value;
}

}  // namespace trainyard::kube
