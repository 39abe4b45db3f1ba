#include "operator/local/selector.h"

#include <algorithm>

namespace trainyard::local {
namespace {

std::string Trim(const std::string& text) {
  const size_t begin = text.find_first_not_of(' ');
  if (begin == std::string::npos) return "";
  return text.substr(begin, text.find_last_not_of(' ') - begin + 1);
}

// At commas that are not inside parentheses.
std::vector<std::string> Split(const std::string& text, char separator) {
  std::vector<std::string> parts;
  int depth = 0;
  std::string part;
  for (const char c : text) {
    depth += c == '(' ? 1 : c == ')' ? -1 : 0;
    if (c == separator && depth == 0) {
      parts.push_back(Trim(part));
      part.clear();
    } else {
      part += c;
    }
  }
  parts.push_back(Trim(part));
  return parts;
}

bool SelectableField(const std::string& name) {
  static const std::vector<std::string> known = {
      "metadata.name", "metadata.namespace", "status.phase", "spec.nodeName", "type", "reason"};
  return std::find(known.begin(), known.end(), name) != known.end() || name.starts_with("involvedObject.") ||
         name.starts_with("regarding.");
}

}  // namespace

bool Selector::Requirement::Holds(const std::string* value) const {
  const bool listed = value && std::find(values.begin(), values.end(), *value) != values.end();
  switch (kind) {
    case kIn:
      return listed;
    case kNotIn:
      return !listed;
    case kExists:
      return value != nullptr;
    case kMissing:
      return value == nullptr;
  }
  return false;
}

Result<Selector> Selector::Parse(const std::string& labels, const std::string& fields) {
  Selector selector;
  const auto read = [](const std::string& text, std::vector<Requirement>& out) {
    for (const std::string& part : Split(text, ',')) {
      if (part.empty()) continue;
      Requirement requirement;
      const size_t unequal = part.find("!="), equal = part.find('='), open = part.find('(');
      if (open != std::string::npos && part.back() == ')') {
        const std::string head = Trim(part.substr(0, open));
        const size_t space = head.rfind(' ');
        if (space == std::string::npos) return false;
        const std::string word = head.substr(space + 1);
        if (word != "in" && word != "notin") return false;
        requirement.key = Trim(head.substr(0, space));
        requirement.kind = word == "in" ? Requirement::kIn : Requirement::kNotIn;
        requirement.values = Split(part.substr(open + 1, part.size() - open - 2), ',');
      } else if (unequal != std::string::npos) {
        requirement = {Trim(part.substr(0, unequal)), Requirement::kNotIn, {Trim(part.substr(unequal + 2))}};
      } else if (equal != std::string::npos) {
        const size_t skip = part.compare(equal, 2, "==") == 0 ? 2 : 1;
        requirement = {Trim(part.substr(0, equal)), Requirement::kIn, {Trim(part.substr(equal + skip))}};
      } else {
        requirement = {part.front() == '!' ? part.substr(1) : part,
                       part.front() == '!' ? Requirement::kMissing : Requirement::kExists,
                       {}};
      }
      if (requirement.key.empty()) return false;
      out.push_back(std::move(requirement));
    }
    return true;
  };
  if (!read(labels, selector.labels_)) return Status(Code::kInvalid, "unable to parse requirement: " + labels);
  if (!read(fields, selector.fields_)) return Status(Code::kInvalid, "unable to parse field selector: " + fields);
  for (const Requirement& requirement : selector.fields_) {
    if (!SelectableField(requirement.key))
      return Status(Code::kInvalid, "field label not supported: " + requirement.key);
  }
  return selector;
}

bool Selector::Matches(const nlohmann::json& object) const {
  for (const Requirement& requirement : labels_) {
    const nlohmann::json::json_pointer at("/metadata/labels");
    const std::string* value = nullptr;
    if (object.contains(at) && object[at].is_object()) {
      const auto found = object[at].find(requirement.key);
      if (found != object[at].end()) value = found->get_ptr<const std::string*>();
    }
    if (!requirement.Holds(value)) return false;
  }
  for (const Requirement& requirement : fields_) {
    std::string pointer = "/" + requirement.key;
    std::replace(pointer.begin(), pointer.end(), '.', '/');
    const nlohmann::json::json_pointer at(pointer);
    // As on a server, a field that is not set is the empty text.
    const std::string value = object.contains(at) && object[at].is_string() ? object[at].get<std::string>() : "";
    if (!requirement.Holds(&value)) return false;
  }
  return true;
}

}  // namespace trainyard::local
