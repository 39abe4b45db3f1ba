#include "common/yaml.h"

#include <yaml-cpp/eventhandler.h>
#include <yaml-cpp/exceptions.h>
#include <yaml-cpp/parser.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <istream>
#include <map>
#include <optional>
#include <streambuf>
#include <utility>

#include "common/text.h"

namespace trainyard {
namespace {

using Json = nlohmann::json;

YamlError At(const YAML::Mark& mark, std::string what) { return {mark.line + 1, mark.column + 1, std::move(what)}; }

// Thrown through the parser, which keeps nothing that would leak.
struct Refused {
  YamlError error;
};

std::string TooDeep(const YamlLimits& limits) {
  return "lists and objects lie more than " + std::to_string(limits.depth) + " deep in each other";
}

// 0x1f, 0o17, 0b11 and 017, as Kubernetes' own reader takes them: `defaultMode: 0644` is 420 to kubectl.
// Source: Go's strconv.ParseInt with base 0.
std::optional<Json> OfAnotherBase(std::string_view text) {
  const bool negative = text.starts_with('-');
  if (negative || text.starts_with('+')) text.remove_prefix(1);
  if (text.size() < 2 || text[0] != '0') return std::nullopt;
  text.remove_prefix(1);
  const char mark = text[0];
  const int base = mark == 'x' || mark == 'X' ? 16 : mark == 'b' || mark == 'B' ? 2 : 8;
  if (base != 8 || mark == 'o' || mark == 'O') text.remove_prefix(1);
  if (text.starts_with('-')) return std::nullopt;  // which from_chars would take
  int64_t whole = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), whole, base);
  if (error != std::errc() || end != text.data() + text.size()) return std::nullopt;
  return negative ? -whole : whole;
}

// A number as JSON would have it from Kubernetes' own reader: 2.0 and 1e3 are whole ones.
Json WholeIfItIs(double number) {
  constexpr double kBeyond = 9223372036854775808.0;  // 2^63
  const bool whole = std::trunc(number) == number && std::abs(number) < kBeyond;
  return whole ? Json(static_cast<int64_t>(number)) : Json(number);
}

// A number as the core schema writes it (YAML 1.2.2, 10.3.2), or with _ between its digits.
std::optional<Json> Number(std::string text) {
  if (std::string_view("+-0123456789").find(text[0]) != std::string_view::npos) std::erase(text, '_');
  if (std::optional<Json> whole = OfAnotherBase(text)) return whole;
  const size_t sign = text[0] == '+' || text[0] == '-' ? 1 : 0;
  if (text.size() == sign || text.find_first_not_of("0123456789.eE+-") != std::string::npos) return std::nullopt;
  if (text[sign] != '.' && (text[sign] < '0' || text[sign] > '9')) return std::nullopt;
  const char* begin = text.data() + (text[0] == '+' ? 1 : 0);
  const char* end = text.data() + text.size();
  int64_t whole = 0;
  if (auto r = std::from_chars(begin, end, whole); r.ec == std::errc() && r.ptr == end) return whole;
  double number = 0;
  if (auto r = std::from_chars(begin, end, number); r.ec == std::errc() && r.ptr == end) return WholeIfItIs(number);
  return std::nullopt;
}

// YAML 1.1's, which kubectl 1.34 goes by: `value: yes` is no text.
const std::map<std::string_view, bool> kTruths = {
    {"true", true},   {"True", true},   {"TRUE", true}, {"yes", true}, {"Yes", true}, {"YES", true},
    {"y", true},      {"Y", true},      {"on", true},   {"On", true},  {"ON", true},  {"false", false},
    {"False", false}, {"FALSE", false}, {"no", false},  {"No", false}, {"NO", false}, {"n", false},
    {"N", false},     {"off", false},   {"Off", false}, {"OFF", false}};

Json Plain(const std::string& text) {
  if (text.empty() || text == "~" || text == "null" || text == "Null" || text == "NULL") return nullptr;
  if (const auto truth = kTruths.find(text); truth != kTruths.end()) return truth->second;
  return Number(text).value_or(Json(text));
}

// Of what is wrong: a key or a tag may be as long as the file.
constexpr size_t kMostWords = 300;

constexpr std::string_view kTagPrefix = "tag:yaml.org,2002:";

// What has been read of one list or object.
struct Open {
  Json value;
  YAML::anchor_t anchor = 0;
  std::optional<std::string> key;  // of an object: the one whose value comes next
  bool merging = false;            // that key is <<
  std::vector<Json> merged;        // what << named, the first one wins
  size_t values = 1, bytes = 0;    // of the whole, expanded
  YAML::Mark mark;
};

// Builds the value of one document from the parser's events, and counts.
class Builder : public YAML::EventHandler {
 public:
  explicit Builder(const YamlLimits& limits) : limits_(limits) {}

  // Before the first document of a text.
  void StartText() { last_start_ = -1; }

  // After a document. REQUIRES: the parser returned true.
  Json Take() {
    anchors_.clear();
    return std::exchange(root_, nullptr);
  }

  // At what cannot begin a value the parser reports one empty document after the other.
  void OnDocumentStart(const YAML::Mark& mark) override {
    mark_ = mark;
    if (mark.pos == last_start_) Refuse("not valid YAML: no value can begin here");
    last_start_ = mark.pos;
  }
  void OnDocumentEnd() override {}
  void OnNull(const YAML::Mark& mark, YAML::anchor_t anchor) override { Leaf(mark, "", nullptr, "", anchor); }
  void OnScalar(const YAML::Mark& mark, const std::string& tag, YAML::anchor_t anchor,
                const std::string& text) override {
    const bool plain = tag.empty() || tag == "?";
    const bool quoted = tag == "!" || tag == std::string(kTagPrefix) + "str";
    if (!plain && !quoted) CheckTag(mark, tag, {"null", "bool", "int", "float"});
    Leaf(mark, text, quoted ? Json(text) : Plain(text), plain ? text : "", anchor);
  }
  void OnSequenceStart(const YAML::Mark& mark, const std::string& tag, YAML::anchor_t anchor,
                       YAML::EmitterStyle::value) override {
    Start(mark, tag, "seq", anchor, Json::array());
  }
  void OnSequenceEnd() override { End(); }
  void OnMapStart(const YAML::Mark& mark, const std::string& tag, YAML::anchor_t anchor,
                  YAML::EmitterStyle::value) override {
    Start(mark, tag, "map", anchor, Json::object());
  }
  void OnMapEnd() override { End(); }

  void OnAlias(const YAML::Mark& mark, YAML::anchor_t anchor) override {
    mark_ = mark;
    if (++aliases_ > limits_.aliases) Refuse("more than " + std::to_string(limits_.aliases) + " aliases");
    const auto found = anchors_.find(anchor);
    if (found == anchors_.end()) Refuse("an alias stands inside of what it names");
    const Anchor& named = found->second;
    if (AwaitsKey()) {
      if (!named.value.is_string()) Refuse("a key is no text");
      return Key(named.value.get<std::string>(), false);
    }
    Count(named.values, named.bytes);  // before anything is copied
    Put(named.value, named.values, named.bytes);
  }

 private:
  struct Anchor {
    Json value;
    size_t values, bytes;
  };

  [[noreturn]] void Refuse(const std::string& what) const { throw Refused{At(mark_, Shorten(what, kMostWords))}; }

  void CheckTag(const YAML::Mark& mark, const std::string& tag, std::initializer_list<const char*> known) {
    mark_ = mark;
    for (const char* name : known) {
      if (tag == std::string(kTagPrefix) + name) return;
    }
    Refuse("the tag " + tag + " is not supported");
  }

  void Count(size_t values, size_t bytes) {
    values_ += values;
    bytes_ += bytes;
    if (values_ > limits_.values) Refuse("more than " + std::to_string(limits_.values) + " values, aliases expanded");
    if (bytes_ > limits_.expanded_bytes)
      Refuse("more than " + std::to_string(limits_.expanded_bytes) + " bytes, aliases expanded");
  }

  bool AwaitsKey() const { return !open_.empty() && open_.back().value.is_object() && !open_.back().key; }

  // `raw`: the scalar as it was written, when it had no quotes.
  void Leaf(const YAML::Mark& mark, const std::string& text, Json value, const std::string& raw,
            YAML::anchor_t anchor) {
    mark_ = mark;
    Count(1, text.size());
    if (anchor != 0) anchors_[anchor] = {AwaitsKey() ? Json(text) : value, 1, text.size()};
    if (!AwaitsKey()) return Put(std::move(value), 1, text.size());
    if (value.is_null()) Refuse("a key is no text");
    open_.back().bytes += text.size();
    Key(text, raw == "<<");
  }

  void Key(std::string key, bool merging) {
    Open& object = open_.back();
    if (!merging && object.value.contains(key)) Refuse("key " + key + " appears twice");
    object.key = std::move(key);
    object.merging = merging;
  }

  void Start(const YAML::Mark& mark, const std::string& tag, const char* kind, YAML::anchor_t anchor, Json empty) {
    if (!tag.empty() && tag != "?" && tag != "!") CheckTag(mark, tag, {kind});
    mark_ = mark;
    if (open_.size() >= static_cast<size_t>(limits_.depth)) Refuse(TooDeep(limits_));
    Count(1, 0);
    open_.emplace_back();
    open_.back().value = std::move(empty);
    open_.back().anchor = anchor;
    open_.back().mark = mark;
  }

  void End() {
    Open done = std::move(open_.back());
    open_.pop_back();
    if (AwaitsKey()) {
      mark_ = done.mark;
      Refuse("a key is no text");
    }
    for (const Json& merged : done.merged) {
      for (const auto& [key, value] : merged.items()) {
        if (!done.value.contains(key)) done.value[key] = value;
      }
    }
    if (done.anchor != 0) {
      Count(done.values, done.bytes);  // a copy
      anchors_[done.anchor] = {done.value, done.values, done.bytes};
    }
    Put(std::move(done.value), done.values, done.bytes);
  }

  void Put(Json value, size_t values, size_t bytes) {
    if (open_.empty()) {
      root_ = std::move(value);
      return;
    }
    Open& parent = open_.back();
    parent.values += values;
    parent.bytes += bytes;
    if (parent.value.is_array()) {
      parent.value.push_back(std::move(value));
    } else if (parent.merging) {
      Merge(parent, std::move(value));
    } else {
      parent.value[*parent.key] = std::move(value);
    }
    parent.key.reset();
  }

  void Merge(Open& object, Json value) {
    if (!value.is_array()) value = Json::array({std::move(value)});
    for (Json& item : value) {
      if (!item.is_object()) Refuse("<<: expected an object, or a list of objects");
      object.merged.push_back(std::move(item));
    }
  }

  const YamlLimits limits_;
  YAML::Mark mark_;
  Json root_;
  std::vector<Open> open_;
  std::map<YAML::anchor_t, Anchor> anchors_;
  size_t aliases_ = 0, values_ = 0, bytes_ = 0;
  int last_start_ = -1;  // of a document
};

// Reads from a view without a copy.
struct ViewBuffer : std::streambuf {
  explicit ViewBuffer(std::string_view text) {
    char* begin = const_cast<char*>(text.data());
    setg(begin, begin, begin + text.size());
  }
};

// The length of the UTF-8 sequence at the start of `text`; 0 when there is none (RFC 3629).
size_t Utf8Length(std::string_view text) {
  const auto byte = [&](size_t i) { return i < text.size() ? static_cast<unsigned char>(text[i]) : 0; };
  const unsigned first = byte(0);
  if (first < 0x80) return 1;
  const size_t length = first >= 0xC2 && first <= 0xDF   ? 2
                        : first >= 0xE0 && first <= 0xEF ? 3
                        : first >= 0xF0 && first <= 0xF4 ? 4
                                                         : 0;
  for (size_t i = 1; i < length; ++i) {
    if ((byte(i) & 0xC0) != 0x80) return 0;
  }
  const bool overlong = (first == 0xE0 && byte(1) < 0xA0) || (first == 0xF0 && byte(1) < 0x90);
  const bool beyond =
      (first == 0xED && byte(1) > 0x9F) || (first == 0xF4 && byte(1) > 0x8F);  // surrogates; above U+10FFFF
  return overlong || beyond ? 0 : length;
}

// So many times the depth that is allowed: brackets may also stand in texts, where they need not be closed.
constexpr size_t kManyOpen = 100;

// yaml-cpp replaces what is no UTF-8, and takes the character 4 for the end of the text. Of a line, and of a list in
// brackets, it keeps all there is, a quarter of a kilobyte for each bracket, before it tells of the first value. Which
// bracket stands in a text only its scanner knows: behind the first one, a list may be open to the end.
std::optional<YamlError> CheckText(std::string_view text, const YamlLimits& limits) {
  const size_t most_open = kManyOpen * static_cast<size_t>(limits.depth);
  int line = 1, column = 1;
  size_t opened = 0, begun = 0;  // brackets that are not closed; what begins a value where a list may be open
  bool brackets = false;
  for (size_t i = 0; i < text.size();) {
    const auto byte = static_cast<unsigned char>(text[i]);
    const size_t length = Utf8Length(text.substr(i, 4));
    if (length == 0) return YamlError{line, column, "is not UTF-8 text"};
    if (byte < 0x20 && byte != '\t' && byte != '\n' && byte != '\r')
      return YamlError{line, column, "holds the control character " + std::to_string(byte)};
    if (byte == '[' || byte == '{') ++opened, brackets = true;
    if ((byte == ']' || byte == '}') && opened > 0) --opened;
    if (byte == '[' || byte == '{' || byte == ',') ++begun;
    if (opened > most_open)
      return YamlError{line, column,
                       "more than " + std::to_string(most_open) + " brackets are not closed, those in texts counted"};
    if (begun > limits.values)
      return YamlError{line, column,
                       "more than " + std::to_string(limits.values) +
                           " values, commas and opening brackets counted, also those in texts"};
    i += length;
    ++column;
    if (byte != '\n') continue;
    ++line, column = 1;
    if (!brackets) begun = 0;
  }
  return std::nullopt;
}

// What is parsed at a time: whole documents.
struct Part {
  std::string_view text;
  int line = 0;  // of its first character, from 0
};

// A parser is made for each.
constexpr size_t kMostParts = 1000;

// Behind it nothing of a document goes on (YAML 1.2.2, 9.1.2).
constexpr std::string_view kMarker = "---";

// Whether one stands at the start of `text`, as the parser sees it.
bool StartsWithMarker(std::string_view text) {
  if (!text.starts_with(kMarker)) return false;
  const std::string_view behind = text.substr(kMarker.size());
  return behind.empty() || behind[0] == ' ' || behind[0] == '\t' || behind[0] == '\n' || behind.starts_with("\r\n");
}

// One document each, so that brackets in one say nothing of a long text in the next. The marker that ends it belongs to
// both: an end of the text would close quotes. A line that begins with % may be of the document behind the next marker.
std::vector<Part> PartsOf(std::string_view text) {
  std::vector<Part> parts;
  size_t begin = 0;
  int line = 0, first = 0;
  bool directive = false;
  for (size_t i = 0; i < text.size(); ++line) {
    const bool marker = StartsWithMarker(text.substr(i));
    if (marker && !directive && i > begin && parts.size() + 1 < kMostParts) {
      parts.push_back({text.substr(begin, i - begin + kMarker.size()), first});
      begin = i;
      first = line;
    }
    directive = text[i] == '%' || (directive && !marker);
    i = std::min(text.find('\n', i), text.size() - 1) + 1;
  }
  parts.push_back({text.substr(begin), first});
  return parts;
}

// Where braces or brackets are open that is allowed; elsewhere the library speaks of what stands behind the tab.
bool IsIndentedByTab(std::string_view text, int line) {
  size_t begin = 0;
  for (int i = 0; i < line; ++i) begin = std::min(text.find('\n', begin), text.size() - 1) + 1;
  const size_t first = text.find_first_not_of(' ', begin);
  return first != std::string_view::npos && text[first] == '\t';
}

std::optional<YamlError> ReadPart(std::string_view text, const YamlLimits& limits, Builder& builder,
                                  std::vector<Json>& documents) {
  if (std::optional<YamlError> error = CheckText(text, limits)) return error;
  try {
    ViewBuffer buffer(text);
    std::istream in(&buffer);
    YAML::Parser parser(in);
    builder.StartText();
    while (parser.HandleNextDocument(builder)) {
      if (Json value = builder.Take(); !value.is_null()) documents.push_back(std::move(value));
    }
    return std::nullopt;
  } catch (const Refused& refused) {
    return refused.error;
  } catch (const YAML::Exception& error) {
    const bool tab = !error.mark.is_null() && IsIndentedByTab(text, error.mark.line);
    return At(error.mark, "not valid YAML: " + error.msg + (tab ? "; the line is indented by a tab" : ""));
  }
}

}  // namespace

std::string YamlError::In(const std::string& origin) const {
  if (line == 0) return origin + ": " + what;
  return origin + ":" + std::to_string(line) + ":" + std::to_string(column) + ": " + what;
}

std::variant<std::vector<Json>, YamlError> ReadYamlDocuments(std::string_view text, const YamlLimits& limits) {
  if (text.size() > limits.bytes) return YamlError{0, 0, "is larger than " + std::to_string(limits.bytes) + " bytes"};
  Builder builder(limits);
  std::vector<Json> documents;
  for (const Part& part : PartsOf(text)) {
    std::optional<YamlError> error = ReadPart(part.text, limits, builder, documents);
    if (!error) continue;
    if (error->line > 0) error->line += part.line;
    return *std::move(error);
  }
  return documents;
}

std::variant<Json, YamlError> ReadYaml(std::string_view text, const YamlLimits& limits) {
  auto read = ReadYamlDocuments(text, limits);
  if (auto* error = std::get_if<YamlError>(&read)) return std::move(*error);
  auto& documents = std::get<std::vector<Json>>(read);
  if (documents.size() > 1)
    return YamlError{0, 0, "holds " + std::to_string(documents.size()) + " documents; allowed: one"};
  return documents.empty() ? Json() : std::move(documents[0]);
}

}  // namespace trainyard
