#include "operator/local/schema.h"

#include <algorithm>

#include "operator/api/json.h"
#include "operator/base/json_access.h"

namespace trainyard::local {
namespace {

bool IsType(const std::string& type, const Json& value) {
  if (type == "object") return value.is_object();
  if (type == "array") return value.is_array();
  if (type == "string") return value.is_string();
  if (type == "boolean") return value.is_boolean();
  if (type == "integer") return value.is_number_integer();
  if (type == "number") return value.is_number();
  return true;
}

using api::Shown;

void CheckScalar(const Json& schema, const Json& value, const std::string& path, std::vector<Cause>& causes) {
  if (const auto list = schema.find("enum");
      list != schema.end() && std::find(list->begin(), list->end(), value) == list->end()) {
    std::string known;
    for (const Json& item : *list) known += (known.empty() ? "" : ", ") + item.dump();
    causes.push_back(
        {"FieldValueNotSupported", "Unsupported value: " + Shown(value) + ": supported values: " + known, path});
  }
  const auto limit = [&](const char* key, bool wrong, const std::string& text) {
    if (wrong)
      causes.push_back(
          {"FieldValueInvalid",
           "Invalid value: " + Shown(value) + ": " + path + " in body should be " + text + " " + schema[key].dump(),
           path});
  };
  if (value.is_number()) {
    if (schema.contains("minimum")) limit("minimum", value < schema["minimum"], "greater than or equal to");
    if (schema.contains("maximum")) limit("maximum", value > schema["maximum"], "less than or equal to");
  }
  if (value.is_string() && schema.contains("maxLength"))
    limit("maxLength", value.get_ref<const std::string&>().size() > schema["maxLength"].get<size_t>(),
          "at most this many characters long:");
}

void Check(const Json& schema, const Json& value, const std::string& path, std::vector<Cause>& causes) {
  if (json::Flag(schema, "x-kubernetes-int-or-string")) {
    if (!value.is_number_integer() && !value.is_string())
      causes.push_back(
          {"FieldValueTypeInvalid", "Invalid value: " + Shown(value) + ": must be an integer or a string", path});
    return;
  }
  const std::string type = json::Text(schema, "type");
  if (!IsType(type, value)) {
    causes.push_back({"FieldValueTypeInvalid",
                      "Invalid value: " + Shown(value) + ": " + path + " in body must be of type " + type, path});
    return;
  }
  CheckScalar(schema, value, path, causes);
  if (value.is_object() && schema.contains("properties")) {
    for (const Json& name : json::List(schema, "required")) {
      if (!value.contains(name.get<std::string>()))
        causes.push_back({"FieldValueRequired", "Required value",
                          path.empty() ? name.get<std::string>() : path + "." + name.get<std::string>()});
    }
    for (const auto& [key, item] : value.items()) {
      const auto property = schema["properties"].find(key);
      if (property != schema["properties"].end() && !item.is_null())
        Check(*property, item, path.empty() ? key : path + "." + key, causes);
    }
  }
  if (value.is_array()) {
    if (schema.contains("maxItems") && value.size() > schema["maxItems"].get<size_t>())
      causes.push_back(
          {"FieldValueInvalid",
           "Too many: " + std::to_string(value.size()) + ": must have at most " + schema["maxItems"].dump() + " items",
           path});
    if (schema.contains("items")) {
      for (size_t i = 0; i < value.size(); ++i)
        Check(schema["items"], value[i], path + "[" + std::to_string(i) + "]", causes);
    }
  }
}

void PruneInto(const Json& schema, Json& value, const std::string& path, std::vector<std::string>& unknown) {
  if (value.is_array() && schema.contains("items")) {
    for (size_t i = 0; i < value.size(); ++i)
      PruneInto(schema["items"], value[i], path + "[" + std::to_string(i) + "]", unknown);
    return;
  }
  if (!value.is_object() || !schema.contains("properties") ||
      json::Flag(schema, "x-kubernetes-preserve-unknown-fields"))
    return;
  std::vector<std::string> gone;
  for (auto& [key, item] : value.items()) {
    const std::string inner = path.empty() ? key : path + "." + key;
    const auto property = schema["properties"].find(key);
    if (property == schema["properties"].end()) {
      gone.push_back(key);
      unknown.push_back(inner);
    } else {
      PruneInto(*property, item, inner, unknown);
    }
  }
  for (const std::string& key : gone) value.erase(key);
}

}  // namespace

std::vector<Cause> CheckSchema(const Json& schema, const Json& value, const std::string& path) {
  std::vector<Cause> causes;
  Check(schema, value, path, causes);
  return causes;
}

std::vector<std::string> Prune(const Json& schema, Json& value, const std::string& path) {
  std::vector<std::string> unknown;
  PruneInto(schema, value, path, unknown);
  return unknown;
}

}  // namespace trainyard::local
