// YAML as JSON, for both programs: what people write, and what strangers send.
//
// YAML 1.2's core schema, with what Kubernetes' own reader adds: merge keys (<<), 0b11, and 017 for 15. Keys are text
// and stand once. A tag other than the core schema's is an error. Hostile text costs little: nesting, aliases and the
// size of what aliases stand for are limited while reading, and a text that goes on for ever inside a value is never
// expanded.
#ifndef TRAINYARD_COMMON_YAML_H_
#define TRAINYARD_COMMON_YAML_H_

#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

namespace trainyard {

struct YamlLimits {
  size_t bytes = size_t{4} << 20;  // of the text
  int depth = 100;                 // of lists and objects in each other
  size_t aliases = 1000;
  // Of all documents, with what aliases repeat; and of commas and opening brackets in one document, or in one line.
  size_t values = 200'000;
  size_t expanded_bytes = size_t{16} << 20;  // of all keys and texts, with what aliases repeat
};

struct YamlError {
  int line = 0, column = 0;  // from 1; 0: of the text as a whole
  std::string what;
  // "job.yaml:3:7: key x appears twice"
  std::string In(const std::string& origin) const;
};

// Every document of the text that is not empty.
std::variant<std::vector<nlohmann::json>, YamlError> ReadYamlDocuments(std::string_view text,
                                                                       const YamlLimits& limits = {});

// The one document of the text; null when it is empty. More than one are an error.
std::variant<nlohmann::json, YamlError> ReadYaml(std::string_view text, const YamlLimits& limits = {});

}  // namespace trainyard

#endif  // TRAINYARD_COMMON_YAML_H_
