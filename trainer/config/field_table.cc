#include "trainer/config/field_table.h"

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>

#include "trainer/base/error.h"
#include "trainer/base/text.h"

namespace trainyard {
namespace {

using Json = nlohmann::json;

std::string Integers(int64_t low, int64_t high) {
  if (high == FieldTable::kMaxInt) return Format("an integer >= %lld", static_cast<long long>(low));
  return Format("an integer from %lld to %lld", static_cast<long long>(low), static_cast<long long>(high));
}

// What the allowed values are called, to whom has given `j`: whoever goes beyond what an integer holds needs the limit.
std::string Expected(const std::string& allowed, const Json& j, int64_t high) {
  const bool beyond = high == FieldTable::kMaxInt && j.is_number() && j.get<double>() >= 0x1p63;
  return beyond ? allowed + ", at most " + std::to_string(FieldTable::kMaxInt) : allowed;
}

bool IsIntegerIn(const Json& j, int64_t low, int64_t high) {
  if (!j.is_number_integer()) return false;
  if (j.is_number_unsigned() && j.get<uint64_t>() > static_cast<uint64_t>(FieldTable::kMaxInt)) return false;
  return j.get<int64_t>() >= low && j.get<int64_t>() <= high;
}

}  // namespace

void RefuseValue(const std::string& path, const Json& value, const std::string& expected) {
  throw ConfigError(path + ": " + value.dump() + " is not allowed; expected " + expected);
}

const char* NameOf(FieldClass field_class) {
  switch (field_class) {
    case FieldClass::kIdentity:
      return "identity";
    case FieldClass::kSchedule:
      return "schedule";
    case FieldClass::kFree:
      return "free";
  }
  return "";
}

void FieldTable::Int(const std::string& path, int64_t& value, int64_t low, FieldClass c, const std::string& doc,
                     int64_t high) {
  const std::string allowed = Integers(low, high);
  auto set = [&value, path, low, high, allowed](const Json& j) {
    if (!IsIntegerIn(j, low, high)) RefuseValue(path, j, Expected(allowed, j, high));
    value = j.get<int64_t>();
  };
  Add({path, c, "integer", allowed, doc, [&value] { return Json(value); }, set});
}

void FieldTable::OptInt(const std::string& path, OptionalInt& value, const std::string& absent, int64_t low,
                        FieldClass c, const std::string& doc, int64_t high) {
  const std::string allowed = Integers(low, high) + ", or " + absent;
  const bool is_auto = absent == "auto";
  auto get = [&value, is_auto] { return value ? Json(*value) : is_auto ? Json("auto") : Json(nullptr); };
  auto set = [&value, path, low, high, allowed, is_auto](const Json& j) {
    if (j.is_null() || (is_auto && j == "auto")) {
      value.reset();
    } else if (IsIntegerIn(j, low, high)) {
      value = j.get<int64_t>();
    } else {
      RefuseValue(path, j, allowed);
    }
  };
  Add({path, c, "integer", allowed, doc, get, set});
}

void FieldTable::Number(const std::string& path, double& value, double low, double high, FieldClass c,
                        const std::string& doc) {
  const std::string allowed =
      std::isinf(high) ? Format("a number >= %.10g", low) : Format("a number from %.10g to %.10g", low, high);
  auto set = [&value, path, low, high, allowed](const Json& j) {
    if (!j.is_number() || !(j.get<double>() >= low && j.get<double>() <= high)) RefuseValue(path, j, allowed);
    value = j.get<double>();
  };
  Add({path, c, "number", allowed, doc, [&value] { return Json(value); }, set});
}

void FieldTable::OptNumber(const std::string& path, std::optional<double>& value, const std::string& absent, double low,
                           double high, FieldClass c, const std::string& doc) {
  const std::string allowed = Format("a number from %.10g to %.10g, or ", low, high) + absent;
  const Json none = absent == "null" ? Json(nullptr) : Json(absent);
  auto set = [&value, path, low, high, allowed, none](const Json& j) {
    if (j.is_null() || j == none) {
      value.reset();
    } else if (j.is_number() && j.get<double>() >= low && j.get<double>() <= high) {
      value = j.get<double>();
    } else {
      RefuseValue(path, j, allowed);
    }
  };
  Add({path, c, "number", allowed, doc, [&value, none] { return value ? Json(*value) : none; }, set});
}

void FieldTable::Bool(const std::string& path, bool& value, FieldClass c, const std::string& doc) {
  auto set = [&value, path](const Json& j) {
    if (!j.is_boolean()) RefuseValue(path, j, "true or false");
    value = j.get<bool>();
  };
  Add({path, c, "boolean", "true or false", doc, [&value] { return Json(value); }, set});
}

void FieldTable::Text(const std::string& path, std::string& value, FieldClass c, const std::string& doc) {
  auto set = [&value, path](const Json& j) {
    if (!j.is_string() && !j.is_null()) RefuseValue(path, j, "a string");
    const std::string text = j.is_null() ? "" : j.get<std::string>();
    if (text.find('\0') != std::string::npos) RefuseValue(path, j, "a string without the character 0");
    value = text;
  };
  Add({path, c, "string", "", doc, [&value] { return value.empty() ? Json(nullptr) : Json(value); }, set});
}

void FieldTable::Choice(const std::string& path, std::string& value, const std::vector<std::string>& choices,
                        FieldClass c, const std::string& doc, const std::vector<std::string>& later) {
  const std::string allowed = "one of " + Join(choices);
  auto set = [&value, path, choices, later, allowed](const Json& j) {
    const std::string text = j.is_string() ? j.get<std::string>() : "";
    if (j.is_string() && std::find(choices.begin(), choices.end(), text) != choices.end()) {
      value = text;
      return;
    }
    if (std::find(later.begin(), later.end(), text) != later.end())
      throw ConfigError(path + ": " + text + " is not supported yet; expected " + allowed);
    const std::string nearest = NearestName(text, choices);
    RefuseValue(path, j, allowed + (nearest.empty() ? "" : " (did you mean " + nearest + "?)"));
  };
  Add({path, c, "string", allowed, doc, [&value] { return Json(value); }, set});
}

}  // namespace trainyard
