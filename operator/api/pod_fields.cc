#include "operator/api/pod_fields.h"

#include <map>
#include <sstream>
#include <string_view>

namespace trainyard::api {
namespace {

// Lines of the table by the name of their type.
using Table = std::map<std::string, std::string, std::less<>>;

Table ReadTable() {
  Table table;
  std::istringstream text{kPodFields};
  for (std::string line; std::getline(text, line);) {
    const size_t space = line.find(' ');
    table[line.substr(0, space)] = space == std::string::npos ? "" : line.substr(space + 1);
  }
  return table;
}

Json SchemaOf(const Table& table, std::string_view type);

Json ObjectSchema(const Table& table, const std::string& line) {
  Json schema = {{"type", "object"}, {"properties", Json::object()}};
  std::istringstream fields(line);
  for (std::string field; fields >> field;) {
    const size_t colon = field.find(':');
    std::string name = field.substr(0, colon);
    if (name.ends_with('!')) {
      name.pop_back();
      schema["required"].push_back(name);
    }
    schema["properties"][name] = SchemaOf(table, std::string_view(field).substr(colon + 1));
  }
  return schema;
}

// The types of a pod do not contain themselves, so that each is written out where it is used.
Json SchemaOf(const Table& table, std::string_view type) {
  const std::string_view inner = type.substr(1, type.size() - 2);
  switch (type.front()) {
    case '*':
      return Json::object();
    case '[':
      return {{"type", "array"}, {"items", SchemaOf(table, inner)}};
    case '{':
      return {{"type", "object"}, {"additionalProperties", SchemaOf(table, inner)}};
    case '=': {
      Json values = Json::array();
      std::istringstream text{std::string(type.substr(1))};
      for (std::string value; std::getline(text, value, '|');) values.push_back(value);
      return {{"type", "string"}, {"enum", values}};
    }
    default:
      break;
  }
  if (type == "intOrString") return {{"x-kubernetes-int-or-string", true}};
  if (const auto line = table.find(type); line != table.end()) return ObjectSchema(table, line->second);
  return {{"type", type}};
}

}  // namespace

const Json& PodTemplateSchema() {
  static const Json schema = SchemaOf(ReadTable(), "PodTemplateSpec");
  return schema;
}

}  // namespace trainyard::api
