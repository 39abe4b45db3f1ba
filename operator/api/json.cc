#include "operator/api/json.h"

#include <algorithm>

#include "common/json.h"
#include "common/text.h"
#include "operator/api/fields.h"
#include "operator/api/labels.h"
#include "operator/base/json_access.h"

namespace trainyard::api {
namespace {

size_t CountValues(const Json& value) {
  size_t count = 1;
  if (value.is_structured()) {
    for (const Json& inner : value) count += CountValues(inner);
  }
  return count;
}

std::string RangeText(const Range& range) {
  if (range.max == Range{}.max) return "an integer >= " + std::to_string(range.min);
  return "an integer from " + std::to_string(range.min) + " to " + std::to_string(range.max);
}

std::string ValuesText(const Allowed& allowed) {
  std::string text;
  for (const std::string_view value : allowed.values) text += (text.empty() ? "one of " : ", ") + std::string(value);
  return text;
}

// Sets members from a JSON object and remembers which keys it was asked for.
class Decoder {
 public:
  Decoder(const Json& object, std::string path, std::vector<FieldError>& errors)
      : object_(object), path_(std::move(path)), errors_(errors) {}

  void Integer(const char* name, int64_t& member, Range range, const FieldText& text) {
    if (const Json* value = Find(name, text, RangeText(range)); value && Whole(*value, range, At(name)))
      member = value->get<int64_t>();
  }
  void Integer(const char* name, std::optional<int64_t>& member, Range range, const FieldText& text) {
    if (const Json* value = Find(name, text, RangeText(range)); value && Whole(*value, range, At(name)))
      member = value->get<int64_t>();
  }
  void IntegerOrAuto(const char* name, std::optional<int64_t>& member, Range range, const FieldText& text) {
    const Json* value = Find(name, text, RangeText(range) + ", or auto");
    if (!value || *value == "auto") return;
    if (value->is_number_integer() && InRange(*value, range)) {
      member = value->get<int64_t>();
    } else {
      Wrong(At(name), *value, RangeText(range) + ", or auto");
    }
  }
  void Number(const char* name, std::optional<double>& member, const FieldText& text) {
    const Json* value = Find(name, text, "a number");
    if (!value) return;
    value->is_number() ? void(member = value->get<double>()) : Wrong(At(name), *value, "a number");
  }
  void Boolean(const char* name, bool& member, const FieldText& text) {
    const Json* value = Find(name, text, "true or false");
    if (!value) return;
    value->is_boolean() ? void(member = value->get<bool>()) : Wrong(At(name), *value, "true or false");
  }
  void Text(const char* name, std::string& member, const Allowed& allowed, const FieldText& text) {
    const std::string what = allowed.values.empty() ? "a string" : ValuesText(allowed);
    const Json* value = Find(name, text, what);
    if (!value) return;
    if (!value->is_string()) return Wrong(At(name), *value, what);
    const auto& content = value->get_ref<const std::string&>();
    if (!allowed.values.empty() &&
        std::find(allowed.values.begin(), allowed.values.end(), content) == allowed.values.end()) {
      return Wrong(At(name), *value, what);
    }
    if (allowed.max_length > 0 && content.size() > static_cast<size_t>(allowed.max_length)) {
      return Wrong(At(name), *value, "at most " + std::to_string(allowed.max_length) + " characters");
    }
    member = content;
  }
  void Moment(const char* name, std::optional<Time>& member, const FieldText& text) {
    const Json* value = Find(name, text, "a time");
    if (!value) return;
    if (value->is_string()) member = ParseTime(value->get_ref<const std::string&>());
    if (!member) Wrong(At(name), *value, "a time as RFC 3339 has it");
  }
  // One that is too large is not kept, so that a few of them do not fill the operator's memory.
  void Free(const char* name, Json& member, const Size& size, const FieldText& text) {
    const Json* value = Find(name, text, "an object");
    if (!value) return;
    if (!value->is_object()) return Wrong(At(name), *value, "an object");
    const size_t bytes = value->dump(-1, ' ', false, Json::error_handler_t::replace).size();
    const size_t values = CountValues(*value);
    if (bytes <= size.max_bytes && values <= size.max_values) {
      member = *value;
    } else if (bytes <= size.max_bytes) {
      errors_.push_back({FieldError::Kind::kInvalid, At(name),
                         std::to_string(values) + " values (texts, numbers, lists, objects)",
                         "at most " + std::to_string(size.max_values) + size.instead});
    } else {
      errors_.push_back({FieldError::Kind::kInvalid, At(name), std::to_string(bytes) + " bytes as JSON",
                         "at most " + std::to_string(size.max_bytes) + " bytes" + size.instead});
    }
  }
  void Integers(const char* name, std::vector<int64_t>& member, Range range, const FieldText& text) {
    const Json* value = Find(name, text, "a list of integers");
    if (!value) return;
    if (!value->is_array()) return Wrong(At(name), *value, "a list of integers");
    member.clear();
    for (size_t i = 0; i < value->size(); ++i) {
      if (Whole((*value)[i], range, At(name, i))) member.push_back((*value)[i].get<int64_t>());
    }
  }
  void Texts(const char* name, std::vector<std::string>& member, const Allowed& allowed, const FieldText& text) {
    const Json* value = Find(name, text, "a list of strings");
    if (!value || !value->is_array() || IsTooLong(*value, name, text)) return;
    for (size_t i = 0; i < value->size(); ++i) {
      if (!(*value)[i].is_string()) continue;
      const auto& content = (*value)[i].get_ref<const std::string&>();
      // Of bytes, whatever the server counts: they are kept.
      if (allowed.max_length > 0 && content.size() > static_cast<size_t>(allowed.max_length)) {
        Wrong(At(name, i), (*value)[i], "at most " + std::to_string(allowed.max_length) + " characters");
      } else {
        member.push_back(content);
      }
    }
  }
  template <class T>
  void Object(const char* name, T& member, const FieldText& text) {
    const Json* value = Find(name, text, "an object");
    if (!value) return;
    if (!value->is_object()) return Wrong(At(name), *value, "an object");
    Into(*value, At(name), member);
  }
  template <class T>
  void Object(const char* name, std::optional<T>& member, const FieldText& text) {
    const Json* value = Find(name, text, "an object");
    if (!value) return;
    if (!value->is_object()) return Wrong(At(name), *value, "an object");
    Into(*value, At(name), member.emplace());
  }
  template <class T>
  void List(const char* name, std::vector<T>& member, const FieldText& text) {
    const Json* value = Find(name, text, "a list");
    if (!value) return;
    if (!value->is_array()) return Wrong(At(name), *value, "a list");
    if (IsTooLong(*value, name, text)) return;
    member.clear();
    for (size_t i = 0; i < value->size(); ++i) {
      if (!(*value)[i].is_object()) {
        Wrong(At(name, i), (*value)[i], "an object");
        continue;
      }
      Into((*value)[i], At(name, i), member.emplace_back());
    }
  }

  // After all fields: keys that nobody asked for.
  void RefuseUnknown() {
    for (const auto& [key, value] : object_.items()) {
      if (errors_.size() > kMostFieldErrors) return;
      if (std::find(known_.begin(), known_.end(), key) != known_.end()) continue;
      const std::string nearest = Nearest(key, known_);
      errors_.push_back({FieldError::Kind::kUnknown, path_ + "." + key, Shown(value),
                         nearest.empty() ? "" : "did you mean " + nearest + "?"});
    }
  }

 private:
  template <class T>
  void Into(const Json& object, const std::string& path, T& member) {
    Decoder decoder(object, path, errors_);
    Fields(decoder, member);
    decoder.RefuseUnknown();
  }
  std::string At(const char* name) const { return path_ + "." + name; }
  std::string At(const char* name, size_t i) const { return At(name) + "[" + std::to_string(i) + "]"; }
  // null is absence, as in the API's own decoding.
  const Json* Find(const char* name, const FieldText& text, const std::string& allowed) {
    known_.emplace_back(name);
    const auto found = object_.find(name);
    if (found != object_.end() && !found->is_null()) return &*found;
    if (text.required) errors_.push_back({FieldError::Kind::kRequired, At(name), "", allowed});
    return nullptr;
  }
  void Wrong(const std::string& field, const Json& value, const std::string& allowed) {
    errors_.push_back({FieldError::Kind::kInvalid, field, Shown(value), allowed});
  }
  bool IsTooLong(const Json& list, const char* name, const FieldText& text) {
    if (list.size() <= static_cast<size_t>(text.most_items)) return false;
    errors_.push_back({FieldError::Kind::kInvalid, At(name), std::to_string(list.size()) + " items",
                       "at most " + std::to_string(text.most_items) + " items"});
    return true;
  }
  static bool InRange(const Json& value, Range range) {
    if (value.is_number_unsigned() && value.get<uint64_t>() > static_cast<uint64_t>(range.max)) return false;
    return value.get<int64_t>() >= range.min && value.get<int64_t>() <= range.max;
  }
  bool Whole(const Json& value, Range range, const std::string& field) {
    if (value.is_number_integer() && InRange(value, range)) return true;
    Wrong(field, value, RangeText(range));
    return false;
  }

  const Json& object_;
  std::string path_;
  std::vector<FieldError>& errors_;
  std::vector<std::string> known_;
};

// Writes members that hold something.
class Encoder {
 public:
  Json object = Json::object();

  void Integer(const char* name, int64_t& member, Range, const FieldText&) { object[name] = member; }
  void Integer(const char* name, std::optional<int64_t>& member, Range, const FieldText&) {
    if (member) object[name] = *member;
  }
  void IntegerOrAuto(const char* name, std::optional<int64_t>& member, Range, const FieldText&) {
    if (member) object[name] = *member;
  }
  void Number(const char* name, std::optional<double>& member, const FieldText&) {
    if (member) object[name] = *member;
  }
  void Boolean(const char* name, bool& member, const FieldText&) { object[name] = member; }
  void Text(const char* name, std::string& member, const Allowed&, const FieldText& text) {
    if (!member.empty() || text.required) object[name] = member;
  }
  void Moment(const char* name, std::optional<Time>& member, const FieldText&) {
    if (member) object[name] = FormatTime(*member);
  }
  void Free(const char* name, Json& member, const Size&, const FieldText&) {
    if (!member.is_null()) object[name] = member;
  }
  void Integers(const char* name, std::vector<int64_t>& member, Range, const FieldText&) {
    if (!member.empty()) object[name] = member;
  }
  void Texts(const char* name, std::vector<std::string>& member, const Allowed&, const FieldText&) {
    if (!member.empty()) object[name] = member;
  }
  template <class T>
  void Object(const char* name, T& member, const FieldText&) {
    Encoder encoder;
    Fields(encoder, member);
    object[name] = std::move(encoder.object);
  }
  template <class T>
  void Object(const char* name, std::optional<T>& member, const FieldText& text) {
    if (member) Object(name, *member, text);
  }
  template <class T>
  void List(const char* name, std::vector<T>& member, const FieldText&) {
    if (member.empty()) return;
    Json& list = object[name] = Json::array();
    for (T& item : member) {
      Encoder encoder;
      Fields(encoder, item);
      list.push_back(std::move(encoder.object));
    }
  }
};

}  // namespace

const std::vector<RestartRule>& DefaultRules() {
  static const std::vector<RestartRule> rules = {
      {.on_pod_condition = "DisruptionTarget", .on_exit_codes = {}, .on_reasons = {}, .action = kRestartUncharged},
      {.on_pod_condition = "", .on_exit_codes = {2, 64, 65, 72, 126, 127}, .on_reasons = {}, .action = kFail},
      {.on_pod_condition = "", .on_exit_codes = {75}, .on_reasons = {}, .action = kRestartUncharged}};
  return rules;
}

std::vector<RestartRule> RulesInForce(const Restart& restart) {
  std::vector<RestartRule> rules = restart.rules;
  rules.insert(rules.end(), DefaultRules().begin(), DefaultRules().end());
  return rules;
}

constexpr size_t kLongestLabel = 63;  // the API's own limit

std::string Shown(const Json& value) { return Shorten(value.dump(-1, ' ', false, Json::error_handler_t::replace), 80); }

TrainingJob JobFromJson(const Json& object, std::vector<FieldError>& errors) {
  TrainingJob job;
  const Json& metadata = json::Field(object, "metadata");
  job.name = json::Text(metadata, "name");
  job.ns = json::Text(metadata, "namespace");
  job.uid = json::Text(metadata, "uid");
  job.resource_version = json::Text(metadata, "resourceVersion");
  job.generation = json::Whole(metadata, "generation");
  job.deleting = !json::Text(metadata, "deletionTimestamp").empty();
  job.created = ParseTime(json::Text(metadata, "creationTimestamp"));
  // Of a label that nobody reads there may be a megabyte, in each of a tenant's jobs.
  if (const std::string queue = json::Text(json::Field(metadata, "labels"), kLabelQueue); !queue.empty())
    job.labels = {{kLabelQueue, Shorten(queue, kLongestLabel)}};
  if (object.is_object() && object.contains(json::kCut))
    errors.push_back({FieldError::Kind::kInvalid, "spec", "(too deep)",
                      "less than " + std::to_string(kJsonDepth) + " lists and objects in each other"});
  if (const Json& spec = json::Field(object, "spec"); spec.is_object()) {
    Decoder decoder(spec, "spec", errors);
    Fields(decoder, job.spec);
    decoder.RefuseUnknown();
  } else {
    const bool missing = spec.is_null();
    errors.push_back({missing ? FieldError::Kind::kRequired : FieldError::Kind::kInvalid, "spec",
                      missing ? "" : Shown(spec), "an object"});
  }
  if (const Json& status = json::Field(object, "status"); status.is_object()) {
    std::vector<FieldError> ignored;
    Decoder decoder(status, "status", ignored);
    Fields(decoder, job.status);
  }
  return job;
}

TrainingJob JobFromJson(const Json& object) {
  std::vector<FieldError> ignored;
  return JobFromJson(object, ignored);
}

Json StatusToJson(const JobStatus& status) {
  JobStatus copy = status;  // Fields takes what it may change
  Encoder encoder;
  Fields(encoder, copy);
  return std::move(encoder.object);
}

Json MergeDiff(const Json& from, const Json& to) {
  Json patch = Json::object();
  for (const auto& [key, value] : from.items()) {
    if (!to.contains(key)) patch[key] = nullptr;
  }
  for (const auto& [key, value] : to.items()) {
    const auto old = from.find(key);
    if (old == from.end()) {
      patch[key] = value;
    } else if (old->is_object() && value.is_object()) {
      if (Json inner = MergeDiff(*old, value); !inner.empty()) patch[key] = std::move(inner);
    } else if (*old != value) {
      patch[key] = value;
    }
  }
  return patch;
}

}  // namespace trainyard::api
