#include "operator/api/job_file.h"

#include <algorithm>

#include "common/yaml.h"
#include "operator/api/field_error.h"
#include "operator/api/json.h"
#include "operator/api/validation.h"
#include "operator/base/file.h"
#include "operator/base/json_access.h"

namespace trainyard::api {
namespace {

Result<std::vector<Json>> Documents(const std::string& text, const std::string& origin) {
  auto read = ReadYamlDocuments(text);
  if (const auto* error = std::get_if<YamlError>(&read)) return Status(Code::kInvalid, error->In(origin));
  return std::move(std::get<std::vector<Json>>(read));
}

// `kubectl get -o yaml` makes a List of several objects, and `kubectl apply` takes it for them.
std::vector<Json> WithoutLists(std::vector<Json> documents) {
  std::vector<Json> objects;
  for (Json& document : documents) {
    const bool list = document.is_object() && json::Field(document, "kind") == "List";
    if (list && json::Field(document, "items").is_array()) {
      for (Json& item : document["items"]) objects.push_back(std::move(item));
    } else {
      objects.push_back(std::move(document));
    }
  }
  return objects;
}

// Kind, version and namespace, which is filled in.
Status CheckIdentity(const std::string& origin, Json& job) {
  if (!job.is_object()) return Status(Code::kInvalid, origin + ": no TrainingJob");
  for (const auto& [key, allowed] : {std::pair{"kind", kKind}, {"apiVersion", kApiVersion}}) {
    const Json& value = json::Field(job, key);
    if (value == allowed) continue;
    const bool meant = value.is_string() && !Nearest(value.get<std::string>(), {allowed}).empty();
    return Status(Code::kInvalid,
                  origin + ": " + key + ": " + Shown(value) + " is not allowed; " +
                      (meant ? std::string("did you mean ") + allowed + "?" : std::string("allowed: ") + allowed));
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
  auto read = ReadYaml(text);
  if (const auto* error = std::get_if<YamlError>(&read)) return Status(Code::kInvalid, error->In(origin));
  return std::move(std::get<Json>(read));
}

Result<JobFile> ReadJobFile(const std::string& path) {
  const std::string origin = path == "-" ? "standard input" : path;
  // One byte more than the reader takes, so that it says that there is more.
  const Result<std::string> text = ReadWhole(path, YamlLimits{}.bytes + 1);
  if (!text.ok()) return text.status();
  Result<std::vector<Json>> documents = Documents(*text, origin);
  if (!documents.ok()) return documents.status();
  std::vector<Json> objects = WithoutLists(std::move(*documents));
  std::vector<Json> jobs;
  JobFile file;
  for (Json& object : objects) {
    const Json& kind = json::Field(object, "kind");
    if (objects.size() > 1 && kind.is_string() && kind != kKind) {
      file.others.push_back({kind.get<std::string>(), json::Text(json::Field(object, "metadata"), "name")});
    } else {
      jobs.push_back(std::move(object));
    }
  }
  if (jobs.size() != 1)
    return Status(Code::kInvalid, origin + ": holds " + std::to_string(jobs.size()) + " TrainingJobs; allowed: one");
  file.job = std::move(jobs.front());
  if (Status status = CheckIdentity(origin, file.job); !status.ok()) return status;
  return file;
}

bool GenerateName(Json& job) {
  const Json &metadata = json::Field(job, "metadata"), &name = json::Field(metadata, "name");
  const std::string prefix = json::Text(metadata, "generateName");
  const bool named = !name.is_null() && !(name.is_string() && json::Text(metadata, "name").empty());
  if (named || prefix.empty()) return false;
  job["metadata"]["name"] = prefix + "xxxxx";
  return true;
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

std::vector<std::string> ForeignClaims(const JobFile& file) {
  std::vector<std::string> known, lines;
  for (const OtherObject& other : file.others) {
    if (other.kind == kClaimKind) known.push_back(other.name);
  }
  if (known.empty()) return {};
  const auto look = [&](const Json& volume, const std::string& path) {
    const std::string claim = json::Text(json::Field(volume, "persistentVolumeClaim"), "claimName");
    if (claim.empty() || std::ranges::find(known, claim) != known.end()) return;
    const std::string nearest = Nearest(claim, known);
    lines.push_back(path + ".persistentVolumeClaim.claimName: there is no claim " + claim + " in this file" +
                    (nearest.empty() ? "" : "; did you mean " + nearest + "?"));
  };
  const Json& spec = json::Field(file.job, "spec");
  look(json::Field(json::Field(spec, "checkpoint"), "volume"), "spec.checkpoint.volume");
  const Json& volumes = json::List(json::Field(json::Field(spec, "template"), "spec"), "volumes");
  for (size_t i = 0; i < volumes.size(); ++i) look(volumes[i], "spec.template.spec.volumes[" + std::to_string(i) + "]");
  return lines;
}

}  // namespace trainyard::api
