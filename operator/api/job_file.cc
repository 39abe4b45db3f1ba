#include "operator/api/job_file.h"

#include <yaml-cpp/yaml.h>

#include <charconv>
#include <iostream>
#include <iterator>

#include "operator/api/json.h"
#include "operator/api/validation.h"
#include "operator/base/file.h"
#include "operator/base/json_access.h"

namespace trainyard::api {
namespace {

std::string Where(const std::string& origin, const YAML::Mark& mark) {
  return origin + ":" + std::to_string(mark.line + 1) + ":" + std::to_string(mark.column + 1);
}

// YAML 1.2's core schema for plain scalars, with 1.1's on/off and yes/no left as text.
Json Scalar(const YAML::Node& node) {
  const std::string& text = node.Scalar();
  if (node.Tag() == "!") return text;  // quoted
  if (text.empty() || text == "~" || text == "null" || text == "Null" || text == "NULL") return nullptr;
  if (text == "true" || text == "True" || text == "TRUE") return true;
  if (text == "false" || text == "False" || text == "FALSE") return false;
  const char* begin = text.data() + (text[0] == '+' ? 1 : 0);
  const char* end = text.data() + text.size();
  int64_t whole = 0;
  if (const auto [at, error] = std::from_chars(begin, end, whole); error == std::errc() && at == end) return whole;
  double number = 0;
  if (const auto [at, error] = std::from_chars(begin, end, number);
      error == std::errc() && at == end && text.find_first_of("0123456789") != std::string::npos)
    return number;
  return text;
}

Result<Json> Convert(const YAML::Node& node, const std::string& origin) {
  switch (node.Type()) {
    case YAML::NodeType::Scalar:
      return Scalar(node);
    case YAML::NodeType::Sequence: {
      Json list = Json::array();
      for (const YAML::Node& item : node) {
        Result<Json> value = Convert(item, origin);
        if (!value.ok()) return value;
        list.push_back(std::move(*value));
      }
      return list;
    }
    case YAML::NodeType::Map: {
      Json object = Json::object();
      for (const auto& entry : node) {
        if (!entry.first.IsScalar())
          return Status(Code::kInvalid, Where(origin, entry.first.Mark()) + ": a key is no text");
        const std::string key = entry.first.Scalar();
        if (object.contains(key))
          return Status(Code::kInvalid, Where(origin, entry.first.Mark()) + ": " + key + " appears twice");
        Result<Json> value = Convert(entry.second, origin);
        if (!value.ok()) return value;
        object[key] = std::move(*value);
      }
      return object;
    }
    default:
      return Json();
  }
}

}  // namespace

Result<Json> YamlToJson(const std::string& text, const std::string& origin) {
  try {
    const std::vector<YAML::Node> documents = YAML::LoadAll(text);
    std::vector<YAML::Node> full;
    for (const YAML::Node& document : documents) {
      if (document && !document.IsNull()) full.push_back(document);
    }
    if (full.size() != 1)
      return Status(Code::kInvalid,
                    origin + ": holds " + std::to_string(full.size()) + " documents; allowed: one TrainingJob");
    return Convert(full[0], origin);
  } catch (const YAML::Exception& error) {
    return Status(Code::kInvalid, Where(origin, error.mark) + ": " + error.msg);
  }
}

Result<Json> ReadJobFile(const std::string& path) {
  std::string text;
  if (path == "-") {
    text.assign(std::istreambuf_iterator<char>(std::cin), {});
  } else {
    Result<std::string> read = ReadWhole(path);
    if (!read.ok()) return read.status();
    text = std::move(*read);
  }
  Result<Json> job = YamlToJson(text, path == "-" ? "standard input" : path);
  if (!job.ok()) return job;
  if (!job->is_object()) return Status(Code::kInvalid, path + ": no TrainingJob");
  if (json::Field(*job, "kind") != kKind)
    return Status(Code::kInvalid,
                  path + ": kind: " + Shown(json::Field(*job, "kind")) + " is not allowed; allowed: " + kKind);
  if (json::Field(*job, "apiVersion") != kApiVersion) {
    return Status(Code::kInvalid, path + ": apiVersion: " + Shown(json::Field(*job, "apiVersion")) +
                                      " is not allowed; allowed: " + kApiVersion);
  }
  Json& metadata = (*job)["metadata"];
  if (!metadata.is_object()) metadata = Json::object();
  Json& ns = metadata["namespace"];
  if (ns.is_null()) ns = "default";
  if (!ns.is_string())
    return Status(Code::kInvalid, path + ": metadata.namespace: " + Shown(ns) + " is not allowed; allowed: a string");
  return job;
}

std::vector<std::string> CheckJob(const Json& job) {
  std::vector<std::string> problems;
  for (const auto& [key, value] : job.items()) {
    if (key != "apiVersion" && key != "kind" && key != "metadata" && key != "spec" && key != "status")
      problems.push_back(key + ": unknown field");
  }
  std::vector<FieldError> errors;
  const TrainingJob parsed = JobFromJson(job, errors);
  if (errors.empty()) errors = Validate(parsed);
  if (errors.empty()) errors = CheckTemplateFields(parsed.spec.pod_template);
  for (const FieldError& error : errors) problems.push_back(error.ToString());
  return problems;
}

}  // namespace trainyard::api
