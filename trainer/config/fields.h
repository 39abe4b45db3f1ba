// The one description of every configuration field: reading, writing, documenting and comparing
// configurations are loops over this table.
#ifndef TRAINYARD_TRAINER_CONFIG_FIELDS_H_
#define TRAINYARD_TRAINER_CONFIG_FIELDS_H_

#include <functional>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

#include "trainer/config/config.h"

namespace trainyard {

enum class FieldClass {
  kIdentity,  // what is trained: a change on resume is an error
  kSchedule,  // how: a change on resume is taken from the file, with a warning
  kFree,      // where and how fast: may change at any time
};

const char* NameOf(FieldClass field_class);

struct Field {
  std::string path;  // "optim.lr"
  FieldClass field_class;
  std::string type;     // "integer", "number", "string", ...
  std::string allowed;  // limits or choices, for people; may be empty
  std::string doc;
  std::function<nlohmann::json()> get;
  // Throws ConfigError that names the field, the value and what is allowed; the configuration is
  // then unchanged.
  std::function<void(const nlohmann::json&)> set;
};

// The fields of `config`, in the file's order. The table refers to `config`, which must outlive it.
std::vector<Field> Fields(Config& config);

}  // namespace trainyard

#endif  // TRAINYARD_TRAINER_CONFIG_FIELDS_H_
