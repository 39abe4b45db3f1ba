// TrainingJobs as people write them: YAML, one document each.
#ifndef TRAINYARD_OPERATOR_API_JOB_FILE_H_
#define TRAINYARD_OPERATOR_API_JOB_FILE_H_

#include <string>
#include <vector>

#include "operator/api/training_job.h"
#include "operator/base/status.h"

namespace trainyard::api {

// Any YAML document as JSON (common/yaml.h); null for an empty text. kInvalid with line and column for what is
// refused, and for more than one document.
Result<Json> YamlToJson(const std::string& text, const std::string& origin);

inline constexpr char kClaimKind[] = "PersistentVolumeClaim";

struct OtherObject {
  std::string kind, name;
};

// What a file for `kubectl apply` holds.
struct JobFile {
  Json job;  // with namespace default when it names none
  std::vector<OtherObject> others;
};

// `path` ("-": standard input) with exactly one TrainingJob. kNotFound when the file cannot be read, kInvalid
// when it holds something else.
Result<JobFile> ReadJobFile(const std::string& path);

// Where the API server is to make the job's name of metadata.generateName: gives it one as long as that, and returns
// true.
// https://kubernetes.io/docs/reference/using-api/api-concepts/#generated-values
bool GenerateName(Json& job);

// Everything that is wrong with the job, as the operator would say it; empty when nothing is.
std::vector<std::string> CheckJob(const Json& job);

// Of a file that holds claims: the claims of the job that are none of them, with the nearest name. They may be in the
// cluster, and so are no mistake that is sure.
std::vector<std::string> ForeignClaims(const JobFile& file);

}  // namespace trainyard::api

#endif  // TRAINYARD_OPERATOR_API_JOB_FILE_H_
