// Checks objects against a structural OpenAPI v3 schema, as an API server does with a CRD's.
#ifndef TRAINYARD_OPERATOR_LOCAL_SCHEMA_H_
#define TRAINYARD_OPERATOR_LOCAL_SCHEMA_H_

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

namespace trainyard::local {

using Json = nlohmann::json;

// One thing that is wrong: an entry of metav1.Status's details.causes.
struct Cause {
  std::string reason;  // FieldValueInvalid, FieldValueNotSupported, FieldValueRequired, FieldValueTypeInvalid
  std::string message;
  std::string field;
};

// Types, required fields, ranges, enums, lengths. Keywords: type, properties, required, items, enum,
// minimum, maximum, maxLength, maxItems, x-kubernetes-preserve-unknown-fields,
// x-kubernetes-int-or-string; a schema without a type takes anything.
std::vector<Cause> CheckSchema(const Json& schema, const Json& value, const std::string& path);

// Removes fields that the schema does not know, and returns their paths.
std::vector<std::string> Prune(const Json& schema, Json& value, const std::string& path);

}  // namespace trainyard::local

#endif  // TRAINYARD_OPERATOR_LOCAL_SCHEMA_H_
