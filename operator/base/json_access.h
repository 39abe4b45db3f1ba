// Reading JSON that someone else wrote: a field that is missing, null or of another type is the empty
// value. Nothing here throws.
#ifndef TRAINYARD_OPERATOR_BASE_JSON_ACCESS_H_
#define TRAINYARD_OPERATOR_BASE_JSON_ACCESS_H_

#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>

namespace trainyard::json {

// A field, beside metadata, of an object of the API of which parts were left out: they nest too deep to be read.
inline constexpr char kCut[] = "trainyard.dev/cut";

// The field, or a null that lives for ever. `object` may be anything.
inline const nlohmann::json& Field(const nlohmann::json& object, const char* key) {
  static const nlohmann::json null;
  if (!object.is_object()) return null;
  const auto found = object.find(key);
  return found == object.end() ? null : *found;
}

inline std::string Text(const nlohmann::json& object, const char* key) {
  const nlohmann::json& field = Field(object, key);
  return field.is_string() ? field.get<std::string>() : "";
}

inline int64_t Whole(const nlohmann::json& object, const char* key, int64_t missing = 0) {
  const nlohmann::json& field = Field(object, key);
  return field.is_number_integer() ? field.get<int64_t>() : missing;
}

// Any number, whole or not.
inline double Number(const nlohmann::json& object, const char* key, double missing = 0) {
  const nlohmann::json& field = Field(object, key);
  return field.is_number() ? field.get<double>() : missing;
}

// A count from a program that we do not know: never negative, never more than a double holds exactly.
inline int64_t Count(const nlohmann::json& object, const char* key) {
  const double value = Number(object, key);
  return value >= 1 ? static_cast<int64_t>(value < 9007199254740992.0 ? value : 9007199254740992.0) : 0;
}

// A count that may be unknown: null, or no number at all.
inline std::optional<int64_t> KnownCount(const nlohmann::json& object, const char* key) {
  return Number(object, key, -1) >= 0 ? std::optional(Count(object, key)) : std::nullopt;
}

// A number that may be unknown, to six digits: tables of a cluster print all that there are.
inline std::optional<double> KnownNumber(const nlohmann::json& object, const char* key) {
  const nlohmann::json& field = Field(object, key);
  if (!field.is_number()) return std::nullopt;
  char text[32];
  std::snprintf(text, sizeof text, "%.6g", field.get<double>());
  return std::strtod(text, nullptr);
}

inline bool Flag(const nlohmann::json& object, const char* key) {
  const nlohmann::json& field = Field(object, key);
  return field.is_boolean() && field.get<bool>();
}

// The field if it is a list, else an empty one.
inline const nlohmann::json& List(const nlohmann::json& object, const char* key) {
  static const nlohmann::json empty = nlohmann::json::array();
  const nlohmann::json& field = Field(object, key);
  return field.is_array() ? field : empty;
}

}  // namespace trainyard::json

#endif  // TRAINYARD_OPERATOR_BASE_JSON_ACCESS_H_
