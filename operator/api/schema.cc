#include "operator/api/schema.h"

#include <algorithm>

#include "operator/api/field_error.h"
#include "operator/api/json.h"
#include "operator/base/json_access.h"

namespace trainyard::api {
namespace {

bool IsType(const std::string& type, const Json& value) {
  if (type == "object") return value.is_object();
  if (type == "array") return value.is_array();
  if (type == "string") return value.is_string();
  if (type == "boolean") return value.is_boolean();
  if (type == "integer") return value.is_number_integer();
  if (type == "number") return value.is_number();
  if (type == "quantity") return value.is_number() || value.is_string();
  return true;
}

std::string TypeName(const std::string& type) {
  if (type == "array") return "a list";
  return (type == "object" || type == "integer" ? "an " : "a ") + type;
}

std::string Below(const std::string& path, const std::string& key) { return path.empty() ? key : path + "." + key; }
std::string At(const std::string& path, size_t i) { return path + "[" + std::to_string(i) + "]"; }

class Checker {
 public:
  std::vector<Cause> causes;

  void Check(const Json& schema, const Json& value, const std::string& path) {
    if (json::Flag(schema, "x-kubernetes-int-or-string")) {
      if (!value.is_number_integer() && !value.is_string())
        Wrong("FieldValueTypeInvalid", path, value, "must be an integer or a string", "an integer or a string");
      return;
    }
    if (const std::string type = json::Text(schema, "type"); !IsType(type, value)) {
      Wrong("FieldValueTypeInvalid", path, value, path + " in body must be of type " + type, TypeName(type));
      return;
    }
    CheckScalar(schema, value, path);
    if (value.is_object()) CheckObject(schema, value, path);
    if (value.is_array()) CheckList(schema, value, path);
  }

 private:
  void Wrong(const char* reason, const std::string& path, const Json& value, const std::string& what,
             const std::string& allowed) {
    causes.push_back({reason, "Invalid value: " + Shown(value) + ": " + what, path, Shown(value), allowed});
  }

  void CheckScalar(const Json& schema, const Json& value, const std::string& path) {
    if (const Json& list = json::List(schema, "enum");
        !list.empty() && std::find(list.begin(), list.end(), value) == list.end()) {
      std::string known, names;
      for (const Json& item : list) {
        known += (known.empty() ? "" : ", ") + item.dump();
        names += (names.empty() ? "one of " : ", ") + item.get<std::string>();
      }
      causes.push_back({"FieldValueNotSupported", "Unsupported value: " + Shown(value) + ": supported values: " + known,
                        path, Shown(value), names});
    }
    const auto limit = [&](const char* key, bool wrong, const std::string& text) {
      const std::string rule = text + " " + schema[key].dump();
      if (wrong) Wrong("FieldValueInvalid", path, value, path + " in body should be " + rule, rule);
    };
    if (value.is_number()) {
      if (schema.contains("minimum")) limit("minimum", value < schema["minimum"], "greater than or equal to");
      if (schema.contains("maximum")) limit("maximum", value > schema["maximum"], "less than or equal to");
    }
    if (value.is_string() && schema.contains("maxLength"))
      limit("maxLength", value.get_ref<const std::string&>().size() > schema["maxLength"].get<size_t>(),
            "at most this many characters long:");
  }

  void CheckObject(const Json& schema, const Json& value, const std::string& path) {
    for (const Json& name : json::List(schema, "required")) {
      const auto& key = name.get_ref<const std::string&>();
      if (!json::Field(value, key.c_str()).is_null()) continue;
      const std::string type = json::Text(json::Field(json::Field(schema, "properties"), key.c_str()), "type");
      causes.push_back(
          {"FieldValueRequired", "Required value", Below(path, key), "", type.empty() ? "a value" : TypeName(type)});
    }
    const Json& properties = json::Field(schema, "properties");
    const Json& others = json::Field(schema, "additionalProperties");
    for (const auto& [key, item] : value.items()) {
      const Json& property = json::Field(properties, key.c_str());
      const Json& inner = property.is_null() ? others : property;
      if (inner.is_object() && !item.is_null()) Check(inner, item, Below(path, key));
    }
  }

  void CheckList(const Json& schema, const Json& value, const std::string& path) {
    if (schema.contains("maxItems") && value.size() > schema["maxItems"].get<size_t>()) {
      const std::string rule = "at most " + schema["maxItems"].dump() + " items";
      causes.push_back({"FieldValueInvalid", "Too many: " + std::to_string(value.size()) + ": must have " + rule, path,
                        std::to_string(value.size()) + " items", rule});
    }
    if (!schema.contains("items")) return;
    for (size_t i = 0; i < value.size(); ++i) Check(schema["items"], value[i], At(path, i));
  }
};

std::string NearestOf(const Json& properties, const std::string& name) {
  std::vector<std::string> known;
  for (const auto& [key, property] : properties.items()) known.push_back(key);
  return Nearest(name, known);
}

void PruneInto(const Json& schema, Json& value, const std::string& path, std::vector<UnknownField>& unknown) {
  if (value.is_array() && schema.contains("items")) {
    for (size_t i = 0; i < value.size(); ++i) PruneInto(schema["items"], value[i], At(path, i), unknown);
    return;
  }
  if (!value.is_object()) return;
  if (const Json& others = json::Field(schema, "additionalProperties"); others.is_object()) {
    for (auto& [key, item] : value.items()) PruneInto(others, item, Below(path, key), unknown);
    return;
  }
  if (!schema.contains("properties") || json::Flag(schema, "x-kubernetes-preserve-unknown-fields")) return;
  const Json& properties = schema["properties"];
  std::vector<std::string> gone;
  for (auto& [key, item] : value.items()) {
    if (item.is_null()) {
      gone.push_back(key);
      continue;
    }
    if (const auto property = properties.find(key); property != properties.end()) {
      PruneInto(*property, item, Below(path, key), unknown);
    } else {
      gone.push_back(key);
      unknown.push_back({Below(path, key), NearestOf(properties, key)});
    }
  }
  for (const std::string& key : gone) value.erase(key);
}

}  // namespace

std::vector<Cause> CheckSchema(const Json& schema, const Json& value, const std::string& path) {
  Checker checker;
  checker.Check(schema, value, path);
  return std::move(checker.causes);
}

void ApplyDefaults(const Json& schema, Json& value) {
  if (value.is_array() && schema.contains("items")) {
    for (Json& item : value) ApplyDefaults(schema["items"], item);
  }
  if (!value.is_object()) return;
  for (const auto& [key, property] : json::Field(schema, "properties").items()) {
    if (!value.contains(key) && property.contains("default")) value[key] = property["default"];
    if (value.contains(key)) ApplyDefaults(property, value[key]);
  }
}

std::vector<UnknownField> Prune(const Json& schema, Json& value, const std::string& path) {
  std::vector<UnknownField> unknown;
  PruneInto(schema, value, path, unknown);
  return unknown;
}

}  // namespace trainyard::api
