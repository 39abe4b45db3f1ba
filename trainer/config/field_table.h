// How a configuration's fields are described: name, type, limits, class and meaning, once.
//
// Reading, writing, documenting and comparing configurations are loops over such a table. The common
// fields are described in fields.cc, those of a task in its own folder.
#ifndef TRAINYARD_TRAINER_CONFIG_FIELD_TABLE_H_
#define TRAINYARD_TRAINER_CONFIG_FIELD_TABLE_H_

#include <cstdint>
#include <functional>
#include <limits>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <vector>

namespace trainyard {

// A number, or absent: "auto" or null in the file.
using OptionalInt = std::optional<int64_t>;

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
  // What "auto" stands for, beside the other fields' values. Unset: it is no value of the field, or more than the
  // configuration decides it.
  std::function<nlohmann::json()> auto_is = {};
};

// Collects descriptions of fields. The values they are bound to must outlive the fields.
class FieldTable {
 public:
  static constexpr int64_t kMaxInt = std::numeric_limits<int64_t>::max();
  static constexpr double kInfinity = std::numeric_limits<double>::infinity();

  void Int(const std::string& path, int64_t& value, int64_t low, FieldClass c, const std::string& doc,
           int64_t high = kMaxInt);
  // `absent` is the word for no value: "auto" or "null".
  void OptInt(const std::string& path, OptionalInt& value, const std::string& absent, int64_t low, FieldClass c,
              const std::string& doc, int64_t high = kMaxInt);
  // Integers are accepted.
  void Number(const std::string& path, double& value, double low, double high, FieldClass c, const std::string& doc);
  // `absent` is the word for no value.
  void OptNumber(const std::string& path, std::optional<double>& value, const std::string& absent, double low,
                 double high, FieldClass c, const std::string& doc);
  void Bool(const std::string& path, bool& value, FieldClass c, const std::string& doc);
  // null is the empty string.
  void Text(const std::string& path, std::string& value, FieldClass c, const std::string& doc);
  // `later`: names that are known, but not supported yet.
  void Choice(const std::string& path, std::string& value, const std::vector<std::string>& choices, FieldClass c,
              const std::string& doc, const std::vector<std::string>& later = {});
  // Of the last field: Field::auto_is.
  void AutoIs(std::function<nlohmann::json()> value) { fields_.back().auto_is = std::move(value); }
  // Anything else.
  void Add(Field field) { fields_.push_back(std::move(field)); }

  const std::vector<Field>& fields() const { return fields_; }
  std::vector<Field> Take() { return std::move(fields_); }

 private:
  std::vector<Field> fields_;
};

// Throws ConfigError: "path: value is not allowed; expected ...".
[[noreturn]] void RefuseValue(const std::string& path, const nlohmann::json& value, const std::string& expected);

}  // namespace trainyard

#endif  // TRAINYARD_TRAINER_CONFIG_FIELD_TABLE_H_
