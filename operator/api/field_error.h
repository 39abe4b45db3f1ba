// What is wrong with one field of an object.
#ifndef TRAINYARD_OPERATOR_API_FIELD_ERROR_H_
#define TRAINYARD_OPERATOR_API_FIELD_ERROR_H_

#include <cstddef>
#include <string>
#include <vector>

namespace trainyard::api {

struct FieldError {
  // kInvalid: a known field whose value is not right.
  enum class Kind { kInvalid, kUnknown, kRequired };
  Kind kind = Kind::kInvalid;
  std::string field;    // "spec.restart.rules[1].action"
  std::string value;    // as JSON, shortened; empty when there is none
  std::string allowed;  // "one of Restart, Fail"; for kUnknown: "did you mean ...?", or empty

  // `spec.workers: 0 is not allowed; allowed: an integer from 1 to 10000`
  std::string ToString() const;
};

// Nobody reads more: what checks an object stops behind so many.
inline constexpr size_t kMostFieldErrors = 20;

// One line each, of at most kMostFieldErrors; then that there are more.
std::string Join(const std::vector<FieldError>& errors);

// The name among `known` with the smallest edit distance to `name`, if that is small; else empty.
std::string Nearest(const std::string& name, const std::vector<std::string>& known);

}  // namespace trainyard::api

#endif  // TRAINYARD_OPERATOR_API_FIELD_ERROR_H_
