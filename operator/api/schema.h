// Checks objects against a structural OpenAPI v3 schema, as an API server does with a CRD's.
#ifndef TRAINYARD_OPERATOR_API_SCHEMA_H_
#define TRAINYARD_OPERATOR_API_SCHEMA_H_

#include <string>
#include <vector>

#include "operator/api/training_job.h"

namespace trainyard::api {

// One thing that is wrong: an entry of metav1.Status's details.causes.
struct Cause {
  std::string reason;   // FieldValueInvalid, FieldValueNotSupported, FieldValueNotFound, FieldValueRequired,
                        // FieldValueTypeInvalid
  std::string message;  // in a server's words
  std::string field;
  std::string value;    // as JSON, shortened; empty when there is none
  std::string allowed;  // "an integer", "one of A, B"
};

// Types, required fields, ranges, enums, lengths. Keywords: type (also quantity: a number or a string),
// properties, additionalProperties, required, items, enum, minimum, maximum, maxLength, maxItems,
// x-kubernetes-preserve-unknown-fields, x-kubernetes-int-or-string; a schema without a type takes
// anything, and null is absence.
std::vector<Cause> CheckSchema(const Json& schema, const Json& value, const std::string& path);

struct UnknownField {
  std::string path;
  std::string nearest;  // a known one with a similar name, or empty
};

// Removes fields that the schema does not know, and returns them; those that are null go as well, silently.
std::vector<UnknownField> Prune(const Json& schema, Json& value, const std::string& path);

// Fills in the schema's `default` of each field that is absent, from outside in, as a server does once it has pruned.
void ApplyDefaults(const Json& schema, Json& value);

}  // namespace trainyard::api

#endif  // TRAINYARD_OPERATOR_API_SCHEMA_H_
