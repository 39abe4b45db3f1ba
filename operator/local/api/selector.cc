#include "operator/local/api/selector.h"

#include <algorithm>
#include <charconv>

#include "operator/api/crd.h"
#include "operator/base/json_access.h"
#include "operator/local/api/label_selector.h"

namespace trainyard::local {
namespace {

using kube::Json, kube::Resource;

bool IsOneOf(const std::string& text, std::initializer_list<const char*> known) {
  return std::find(known.begin(), known.end(), text) != known.end();
}

bool IsPartOf(const std::string& name, const std::string& reference) {
  return name.starts_with(reference) &&
         IsOneOf(name.substr(reference.size()),
                 {"kind", "namespace", "name", "uid", "apiVersion", "resourceVersion", "fieldPath"});
}

// The fields that kube-apiserver selects objects of this kind by.
bool IsSelectable(const Resource& resource, const std::string& name) {
  if (IsOneOf(name, {"metadata.name", "metadata.namespace"})) return true;
  if (resource == kube::kPods)
    return IsOneOf(name, {"spec.nodeName", "spec.restartPolicy", "spec.schedulerName", "spec.serviceAccountName",
                          "spec.hostNetwork", "status.phase", "status.podIP", "status.nominatedNodeName"});
  if (resource == kube::kEvents)
    return IsOneOf(name, {"reason", "type", "reportingController"}) || IsPartOf(name, "regarding.");
  if (resource.kind == kube::kEvents.kind)  // in the core group
    return IsOneOf(name, {"reason", "type", "source", "reportingComponent"}) || IsPartOf(name, "involvedObject.");
  if (resource == kube::kServices) return IsOneOf(name, {"spec.clusterIP", "spec.type"});
  if (resource != kube::kTrainingJobs) return false;
  static const Json crd = api::CustomResourceDefinition();
  const Json& fields = json::List(crd["spec"]["versions"][0], "selectableFields");
  return std::any_of(fields.begin(), fields.end(),
                     [&](const Json& field) { return json::Text(field, "jsonPath") == "." + name; });
}

// "a=b,c!=d"; a comma, an equals sign or a backslash in a value stands behind a backslash.
Result<std::vector<Requirement>> ParseFields(const std::string& text) {
  std::vector<Requirement> all;
  for (size_t at = 0; at < text.size();) {
    Requirement requirement;
    std::string word, value;
    bool compared = false;
    size_t i = at;
    for (; i < text.size() && text[i] != ','; ++i) {
      if (!compared && (text[i] == '=' || text.compare(i, 2, "!=") == 0)) {
        compared = true;
        requirement.kind = text[i] == '!' ? Requirement::kNotIn : Requirement::kIn;
        if (text.compare(i, 2, "!=") == 0 || text.compare(i, 2, "==") == 0) ++i;
        continue;
      }
      if (text[i] == '\\' && i + 1 < text.size()) ++i;
      (compared ? value : word) += text[i];
    }
    const std::string whole = text.substr(at, i - at);
    at = i + 1;
    if (whole.empty()) continue;
    if (!compared) return Status(Code::kInvalid, "invalid selector: '" + text + "'; can't understand '" + whole + "'");
    requirement.key = word;
    requirement.values = {value};
    all.push_back(std::move(requirement));
  }
  return all;
}

// As on a server, a field that is not set is the empty text.
std::string FieldText(const Json& object, const std::string& path) {
  std::string pointer = "/" + path;
  std::replace(pointer.begin(), pointer.end(), '.', '/');
  const Json::json_pointer at(pointer);
  if (!object.contains(at)) return "";
  return object[at].is_string() ? object[at].get<std::string>() : object[at].dump();
}

bool ReadNumber(const std::string& text, int64_t& number) {
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  return error == std::errc() && end == text.data() + text.size();
}

}  // namespace

bool Requirement::Holds(const std::string* value) const {
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
    case kGreater:
    case kLess: {
      int64_t have = 0, limit = 0;
      if (!value || !ReadNumber(*value, have) || !ReadNumber(values.front(), limit)) return false;
      return kind == kGreater ? have > limit : have < limit;
    }
  }
  return false;
}

Result<Selector> Selector::Parse(const Resource& resource, const std::string& labels, const std::string& fields) {
  Selector selector;
  Result<std::vector<Requirement>> by_label = ParseLabelSelector(labels);
  if (!by_label.ok()) return by_label.status();
  Result<std::vector<Requirement>> by_field = ParseFields(fields);
  if (!by_field.ok()) return by_field.status();
  selector.labels_ = std::move(*by_label);
  selector.fields_ = std::move(*by_field);
  for (const Requirement& requirement : selector.fields_) {
    if (IsSelectable(resource, requirement.key)) continue;
    const bool plain = resource == kube::kClaims || resource == kube::kLeases;  // which have no fields of their own
    return Status(Code::kInvalid, plain ? "\"" + requirement.key +
                                              "\" is not a known field selector: only "
                                              "\"metadata.name\", \"metadata.namespace\""
                                        : "field label not supported: " + requirement.key);
  }
  return selector;
}

bool Selector::Matches(const Json& object) const {
  for (const Requirement& requirement : labels_) {
    const Json& labels = json::Field(json::Field(object, "metadata"), "labels");
    const Json& value = json::Field(labels, requirement.key.c_str());
    if (!requirement.Holds(value.get_ptr<const std::string*>())) return false;
  }
  for (const Requirement& requirement : fields_) {
    const std::string value = FieldText(object, requirement.key);
    if (!requirement.Holds(&value)) return false;
  }
  return true;
}

}  // namespace trainyard::local
