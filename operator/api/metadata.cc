#include "operator/api/metadata.h"

#include <algorithm>
#include <cctype>

#include "operator/api/json.h"
#include "operator/api/pod_fields.h"
#include "operator/base/json_access.h"

namespace trainyard::api {
namespace {

constexpr size_t kMaxLabel = 63, kMaxSubdomain = 253, kMaxAnnotations = 256 << 10;

bool IsLowerOrDigit(char c) { return (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9'); }
bool IsAlphanumeric(char c) { return IsLowerOrDigit(c) || (c >= 'A' && c <= 'Z'); }

// "node_type.v2": what a label's value is, and the part of a key behind its prefix.
bool IsLabelText(const std::string& text) {
  return !text.empty() && text.size() <= kMaxLabel && IsAlphanumeric(text.front()) && IsAlphanumeric(text.back()) &&
         std::all_of(text.begin(), text.end(),
                     [](char c) { return IsAlphanumeric(c) || c == '-' || c == '_' || c == '.'; });
}

std::string Lower(std::string text) {
  std::transform(text.begin(), text.end(), text.begin(), [](unsigned char c) { return std::tolower(c); });
  return text;
}

Cause Refuse(const std::string& field, const std::string& text, const char* allowed) {
  const std::string shown = Json(text).dump(-1, ' ', false, Json::error_handler_t::replace);
  return {"FieldValueInvalid", "Invalid value: " + shown + ": must be " + allowed, field, shown, allowed};
}

}  // namespace

bool IsLabelKey(const std::string& key) {
  const size_t slash = key.find('/');
  if (slash == std::string::npos) return IsLabelText(key);
  return IsDnsSubdomain(key.substr(0, slash)) && IsLabelText(key.substr(slash + 1));
}

bool IsLabelValue(const std::string& value) { return value.empty() || IsLabelText(value); }

bool IsDnsLabel(const std::string& text) {
  return !text.empty() && text.size() <= kMaxLabel && IsLowerOrDigit(text.front()) && IsLowerOrDigit(text.back()) &&
         std::all_of(text.begin(), text.end(), [](char c) { return IsLowerOrDigit(c) || c == '-'; });
}

bool IsDnsSubdomain(const std::string& text) {
  if (text.size() > kMaxSubdomain) return false;
  for (size_t begin = 0; begin <= text.size();) {
    const size_t end = std::min(text.find('.', begin), text.size());
    // A part may be longer than a label here.
    if (end == begin || !IsLowerOrDigit(text[begin]) || !IsLowerOrDigit(text[end - 1])) return false;
    if (!std::all_of(text.begin() + static_cast<std::ptrdiff_t>(begin), text.begin() + static_cast<std::ptrdiff_t>(end),
                     [](char c) { return IsLowerOrDigit(c) || c == '-'; }))
      return false;
    begin = end + 1;
  }
  return true;
}

const Json& MetadataSchema() { return PodTemplateSchema()["properties"]["metadata"]; }

std::vector<Cause> CheckLabels(const Json& metadata, const std::string& path) {
  std::vector<Cause> causes;
  size_t bytes = 0;
  for (const auto& [key, value] : json::Field(metadata, "annotations").items())
    bytes += key.size() + (value.is_string() ? value.get_ref<const std::string&>().size() : 0);
  if (bytes > kMaxAnnotations)
    causes.push_back({"FieldValueTooLong",
                      "Too long: may not be more than " + std::to_string(kMaxAnnotations) + " bytes",
                      path + ".annotations", std::to_string(bytes) + " bytes",
                      std::to_string(kMaxAnnotations) + " bytes together at most"});
  for (const char* map : {"labels", "annotations"}) {
    const std::string field = path + "." + map;
    for (const auto& [key, value] : json::Field(metadata, map).items()) {
      // An annotation's prefix may have upper case (apimachinery's ValidateAnnotations).
      if (!IsLabelKey(std::string(map) == "labels" ? key : Lower(key)))
        causes.push_back(Refuse(field, key, kLabelKeyRule));
      const std::string text = value.is_string() ? value.get<std::string>() : "";
      if (std::string(map) == "labels" && !IsLabelValue(text))
        causes.push_back(Refuse(field + "." + key, text, kLabelValueRule));
    }
  }
  return causes;
}

}  // namespace trainyard::api
