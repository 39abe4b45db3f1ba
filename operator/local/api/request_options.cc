#include "operator/local/api/request_options.h"

#include <algorithm>
#include <charconv>
#include <optional>

#include "operator/base/json_access.h"

namespace trainyard::local {
namespace {

std::string First(const Query& query, const char* name) {
  const std::vector<std::string> values = query(name);
  return values.empty() ? "" : values.front();
}

// As apimachinery reads a boolean parameter: everything but these is true.
bool IsTrue(const Query& query, const char* name) {
  const std::vector<std::string> values = query(name);
  return !values.empty() && values.front() != "false" && values.front() != "0";
}

std::optional<int64_t> Integer(const std::string& text) {
  int64_t number = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  return error == std::errc() && end == text.data() + text.size() ? std::optional(number) : std::nullopt;
}

std::string NoNumber(const std::string& text, const char* function) {
  return std::string("strconv.") + function + ": parsing " + Json(text).dump() + ": invalid syntax";
}

ApiResult ReadInteger(const Query& query, const char* name, std::optional<int64_t>& value) {
  const std::string text = First(query, name);
  if (text.empty()) return {};
  value = Integer(text);
  return value ? ApiResult{} : BadRequest(NoNumber(text, "ParseInt"));
}

// One thing that is wrong with options of `kind`.
ApiResult Wrong(const std::string& kind, const std::string& field, const std::string& reason,
                const std::string& message) {
  const Resource options{"meta.k8s.io", "v1", "", kind};
  return Invalid(options, "", {{reason, message, field, "", ""}});
}
ApiResult Unsupported(const std::string& kind, const std::string& field, const Json& value, const char* supported) {
  return Wrong(kind, field, "FieldValueNotSupported",
               "Unsupported value: " + value.dump() + ": supported values: " + supported);
}
ApiResult Forbidden(const std::string& field, const std::string& why) {
  return Wrong("ListOptions", field, "FieldValueForbidden", "Forbidden: " + why);
}

ApiResult ReadDryRun(const std::vector<std::string>& values, const std::string& kind, bool& dry_run) {
  if (std::any_of(values.begin(), values.end(), [](const std::string& value) { return value != "All"; }))
    return Unsupported(kind, "dryRun", values, "\"All\"");
  dry_run = !values.empty();
  return {};
}

ApiResult CheckMatch(const ListRequest& request) {
  const std::string& match = request.match;
  if (match.empty()) return {};
  if (request.options.resource_version.empty())
    return Forbidden("resourceVersionMatch", "resourceVersionMatch is forbidden unless resourceVersion is provided");
  if (match != "Exact" && match != "NotOlderThan")
    return Unsupported("ListOptions", "resourceVersionMatch", match, R"("Exact", "NotOlderThan", "")");
  if (match == "Exact" && request.options.resource_version == "0")
    return Forbidden("resourceVersionMatch", "resourceVersionMatch \"exact\" is forbidden for resourceVersion \"0\"");
  return {};
}

// What lists and watches share.
void ReadSelection(const Query& query, ListRequest& request) {
  request.options.label_selector = First(query, "labelSelector");
  request.options.field_selector = First(query, "fieldSelector");
  request.options.resource_version = First(query, "resourceVersion");
  request.match = First(query, "resourceVersionMatch");
}

bool IsVersion(const std::string& text) { return text.empty() || Integer(text).value_or(-1) >= 0; }

std::string NoVersion(const std::string& text) {
  return "resourceVersion: Invalid value: " + Json(text).dump() + ": " + NoNumber(text, "ParseUint");
}

}  // namespace

ApiResult ReadWriteOptions(const Query& query, const std::string& kind, WriteRequest& options) {
  if (ApiResult wrong = ReadDryRun(query("dryRun"), kind, options.dry_run); !wrong.ok()) return wrong;
  const std::string validation = First(query, "fieldValidation");
  if (!validation.empty() && validation != "Ignore" && validation != "Warn" && validation != "Strict")
    return Unsupported(kind, "fieldValidation", validation, R"("", "Ignore", "Strict", "Warn")");
  options.strict = validation == "Strict";
  options.manager = First(query, "fieldManager");
  options.force = IsTrue(query, "force");
  return {};
}

ApiResult ReadDeleteOptions(const Query& query, const Json& body, DeleteRequest& options) {
  if (!body.is_object()) return BadRequest("the body is no DeleteOptions");
  std::vector<std::string> dry_run = query("dryRun");
  for (const Json& value : json::List(body, "dryRun"))
    dry_run.push_back(value.is_string() ? value : Json(value.dump()));
  if (ApiResult wrong = ReadDryRun(dry_run, "DeleteOptions", options.dry_run); !wrong.ok()) return wrong;
  if (ApiResult wrong = ReadInteger(query, "gracePeriodSeconds", options.grace_seconds); !wrong.ok()) return wrong;
  if (const Json& grace = json::Field(body, "gracePeriodSeconds"); grace.is_number_integer())
    options.grace_seconds = grace.get<int64_t>();
  const Json& preconditions = json::Field(body, "preconditions");
  options.uid = json::Text(preconditions, "uid");
  options.resource_version = json::Text(preconditions, "resourceVersion");
  options.propagation = json::Text(body, "propagationPolicy");
  if (options.propagation.empty()) options.propagation = First(query, "propagationPolicy");
  for (const char* known : {"", "Foreground", "Background", "Orphan"}) {
    if (options.propagation == known) return {};
  }
  return Unsupported("DeleteOptions", "propagationPolicy", options.propagation,
                     R"("Foreground", "Background", "Orphan", "nil")");
}

ApiResult ReadListOptions(const Query& query, ListRequest& request) {
  ReadSelection(query, request);
  kube::ListOptions& options = request.options;
  std::optional<int64_t> limit;
  if (ApiResult wrong = ReadInteger(query, "limit", limit); !wrong.ok()) return wrong;
  options.limit = limit.value_or(0);
  options.continue_token = First(query, "continue");
  if (!query("sendInitialEvents").empty())
    return Forbidden("sendInitialEvents", "sendInitialEvents is forbidden for list");
  if (ApiResult wrong = CheckMatch(request); !wrong.ok()) return wrong;
  if (!IsVersion(options.resource_version))
    return BadRequest("invalid resource version: " + NoVersion(options.resource_version));
  if (!options.continue_token.empty() && !options.resource_version.empty() && options.resource_version != "0")
    return BadRequest("specifying resource version is not allowed when using continue");
  const bool of_a_version = !options.resource_version.empty() && options.resource_version != "0";
  if (request.match.empty() && options.limit > 0 && of_a_version) request.match = "Exact";  // KEP-2523
  return {};
}

ApiResult ReadWatchOptions(const Query& query, WatchRequest& request) {
  ReadSelection(query, request.list);
  request.bookmarks = IsTrue(query, "allowWatchBookmarks");
  const bool asked = !query("sendInitialEvents").empty();
  request.initial_events = IsTrue(query, "sendInitialEvents");
  if (asked && request.list.match != "NotOlderThan")
    return Forbidden("resourceVersionMatch", "sendInitialEvents requires setting resourceVersionMatch to NotOlderThan");
  if (!asked && !request.list.match.empty())
    return Forbidden("resourceVersionMatch",
                     "resourceVersionMatch is forbidden for watch unless sendInitialEvents is provided");
  if (!IsVersion(request.list.options.resource_version))
    return BadRequest(NoVersion(request.list.options.resource_version));
  std::optional<int64_t> seconds;
  if (ApiResult wrong = ReadInteger(query, "timeoutSeconds", seconds); !wrong.ok()) return wrong;
  if (seconds) request.timeout_seconds = std::clamp(static_cast<double>(*seconds), 1.0, 7200.0);
  return {};
}

}  // namespace trainyard::local
