// Fields of an object by a path of the form .a.b.c: the part of JSONPath that columns and subresources of a CRD use.
#ifndef TRAINYARD_OPERATOR_LOCAL_API_OBJECT_PATH_H_
#define TRAINYARD_OPERATOR_LOCAL_API_OBJECT_PATH_H_

#include <algorithm>
#include <nlohmann/json.hpp>
#include <string>

namespace trainyard::local {

inline nlohmann::json::json_pointer PathPointer(std::string path) {
  std::replace(path.begin(), path.end(), '.', '/');
  return nlohmann::json::json_pointer(path);
}

// A copy of the field; null where there is none, or no path.
inline nlohmann::json AtPath(const nlohmann::json& object, const std::string& path) {
  const nlohmann::json::json_pointer pointer = PathPointer(path);
  return !path.empty() && object.contains(pointer) ? object[pointer] : nlohmann::json();
}

}  // namespace trainyard::local

#endif  // TRAINYARD_OPERATOR_LOCAL_API_OBJECT_PATH_H_
