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

bool IsUtf8(const std::string& text) {
  try {
    static_cast<void>(Json(text).dump());  // which is strict
    return true;
  } catch (const Json::exception&) {
    return false;
  }
}

Result<std::vector<Json>> Documents(const std::string& text, const std::string& origin) {
  if (!IsUtf8(text)) return Status(Code::kInvalid, origin + ": is not UTF-8 text");
  try {
    std::vector<Json> full;
    for (const YAML::Node& document : YAML::LoadAll(text)) {
      if (!document || document.IsNull()) continue;
      Result<Json> value = Convert(document, origin);
      if (!value.ok()) return value.status();
      full.push_back(std::move(*value));
    }
    return full;
  } catch (const YAML::Exception& error) {
    return Status(Code::kInvalid, Where(origin, error.mark) + ": " + error.msg);
  }
}

// Kind, version and namespace, which is filled in.
Status CheckIdentity(const std::string& origin, Json& job) {
  if (!job.is_object()) return Status(Code::kInvalid, origin + ": no TrainingJob");
  for (const auto& [key, allowed] : {std::pair{"kind", kKind}, {"apiVersion", kApiVersion}}) {
    const Json& value = json::Field(job, key);
    if (value != allowed)
      return Status(Code::kInvalid, origin + ": " + key + ": " + Shown(value) + " is not allowed; allowed: " + allowed);
  }
  Json& metadata = job["metadata"];
  if (metadata.is_null()) metadata = Json::object();
  if (!metadata.is_object())
    return Status(Code::kInvalid, origin + ": metadata: " + Shown(metadata) + " is not allowed; allowed: an object");
  if (Json& ns = metadata["namespace"]; ns.is_null() || (ns.is_string() && ns.get_ref<const std::string&>().empty()))
    ns = "default";
  return Status::Ok();
}

}  // namespace

Result<Json> YamlToJson(const std::string& text, const std::string& origin) {
  Result<std::vector<Json>> documents = Documents(text, origin);
  if (!documents.ok()) return documents.status();
  if (documents->size() != 1)
    return Status(Code::kInvalid, origin + ": holds " + std::to_string(documents->size()) + " documents; allowed: one");
  return std::move(documents->front());
}

Result<JobFile> ReadJobFile(const std::string& path) {
  const std::string origin = path == "-" ? "standard input" : path;
  std::string text;
  if (path == "-") {
    text.assign(std::istreambuf_iterator<char>(std::cin), {});
  } else {
    Result<std::string> read = ReadWhole(path);
    if (!read.ok()) return read.status();
    text = std::move(*read);
  }
  Result<std::vector<Json>> documents = Documents(text, origin);
  if (!documents.ok()) return documents.status();
  std::vector<Json> jobs;
  JobFile file;
  for (Json& document : *documents) {
    const Json& kind = json::Field(document, "kind");
    if (documents->size() > 1 && kind.is_string() && kind != kKind) {
      file.others.push_back(kind.get<std::string>() + " " + json::Text(json::Field(document, "metadata"), "name"));
    } else {
      jobs.push_back(std::move(document));
    }
  }
  if (jobs.size() != 1)
    return Status(Code::kInvalid, origin + ": holds " + std::to_string(jobs.size()) + " TrainingJobs; allowed: one");
  file.job = std::move(jobs.front());
  if (Status status = CheckIdentity(origin, file.job); !status.ok()) return status;
  return file;
}

std::vector<std::string> CheckJob(const Json& job) {
  std::vector<std::string> problems;
  for (const auto& [key, value] : job.items()) {
    if (key != "apiVersion" && key != "kind" && key != "metadata" && key != "spec" && key != "status")
      problems.push_back(key + ": unknown field");
  }
  std::vector<FieldError> errors = CheckMetadata(job["metadata"]);
  const TrainingJob parsed = JobFromJson(job, errors);
  if (errors.empty()) errors = Validate(parsed);
  if (errors.empty()) errors = CheckPodFields(parsed.spec);
  for (const FieldError& error : errors) problems.push_back(error.ToString());
  return problems;
}

}  // namespace trainyard::api
