// TrainingJob as JSON, both ways. With fields.h the only place that knows the JSON names.
#ifndef TRAINYARD_OPERATOR_API_JSON_H_
#define TRAINYARD_OPERATOR_API_JSON_H_

#include <vector>

#include "operator/api/field_error.h"
#include "operator/api/training_job.h"

namespace trainyard::api {

// Reads a whole object. Wrong and unknown fields of the spec are added to `errors` and keep their
// defaults; status and metadata are ours or the server's and read leniently.
TrainingJob JobFromJson(const Json& object, std::vector<FieldError>& errors);
// The same of one that the API has taken, whatever is wrong with it.
TrainingJob JobFromJson(const Json& object);

// What goes under "status"; fields that hold nothing are left out.
Json StatusToJson(const JobStatus& status);

// A merge patch (RFC 7386) that makes `to` of `from`; an empty object when they are equal.
Json MergeDiff(const Json& from, const Json& to);

// `value` for a message: at most 80 characters.
std::string Shown(const Json& value);

}  // namespace trainyard::api

#endif  // TRAINYARD_OPERATOR_API_JSON_H_
