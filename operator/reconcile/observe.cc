#include "operator/reconcile/observe.h"

#include <algorithm>

#include "common/text.h"
#include "operator/api/json.h"
#include "operator/api/labels.h"
#include "operator/api/validation.h"
#include "operator/base/json_access.h"
#include "operator/reconcile/policies.h"

namespace trainyard::reconcile {
namespace {

// An attempt keeps its size, whatever a later spec says. Who may write a status may write anything in it: neither
// number is taken for a size before it was looked at.
int64_t SizeOf(const TrainingJob& job) {
  const int64_t desired = job.status.workers.desired;
  const bool begun = job.status.attempt > 0 && desired > 0 && desired <= api::kMaxWorkers;
  return std::clamp<int64_t>(begun ? desired : job.spec.workers, 0, api::kMaxWorkers);
}

// Of template and config of a job together. Nearly all jobs have less, and hundreds that have more would fill the
// operator's memory.
constexpr size_t kMostKept = size_t{16} << 10;
constexpr size_t kLongestWords = 512;  // of each part of what is said of a wrong field

// Empty for null.
std::string TextOf(const Json& value) {
  if (value.is_null()) return "";
  std::string text = value.dump(-1, ' ', false, Json::error_handler_t::replace);
  text.shrink_to_fit();  // it is kept
  return text;
}

// Of a job of the same name that was deleted, also if it left its pods behind as nobody's. What someone has made of one
// of our own, with its labels, is no earlier job's.
bool IsOfEarlier(const TrainingJob& job, const PodRecord& pod) {
  const bool worker = pod.attempt > 0 && pod.rank >= 0 && !pod.job_uid.empty() && pod.job_uid != job.uid;
  return worker && (pod.of_job || pod.orphan) && !pod.over && !pod.forced;
}

bool IsOurs(const TrainingJob& job, const PodRecord& pod) {
  return pod.name == api::PodName(job.name, pod.attempt, pod.rank);
}

// Whether the template or the config was too large to be taken.
bool IsMissing(const Json& object, const JobRecord& record) {
  const Json& spec = json::Field(object, "spec");
  return !IsFinished(record.job.status) &&
         ((record.pod_template.empty() && json::Field(spec, "template").is_object()) ||
          (record.config.empty() && json::Field(spec, "config").is_object()));
}

Json ValueOf(const std::string& text) { return text.empty() ? Json() : Json::parse(text); }

}  // namespace

JobRecord JobFromApi(const nlohmann::json& object) {
  JobRecord record = WholeFromApi(object);
  // Of one that is larger than any may be nothing is kept either way, and each look at it in the API takes as much.
  record.apart = record.pod_template.size() + record.config.size() > kMostKept || IsMissing(object, record);
  if (!record.apart) return record;
  for (std::string* text : {&record.pod_template, &record.config}) {
    text->clear();
    text->shrink_to_fit();
  }
  return record;
}

kube::FieldPaths FieldsOfWhole() {
  return {"metadata.name",
          "metadata.namespace",
          "metadata.uid",
          "metadata.resourceVersion",
          "metadata.generation",
          "metadata.creationTimestamp",
          "metadata.deletionTimestamp"};
}

kube::FieldPaths FieldsOfConfirmed() {
  kube::FieldPaths paths = FieldsOfWhole();
  paths.emplace_back("spec.suspend");
  return paths;
}

JobRecord WholeFromApi(const nlohmann::json& object) {
  JobRecord record;
  record.job = api::JobFromJson(object, record.errors);
  api::JobSpec& spec = record.job.spec;
  if (IsFinished(record.job.status)) {
    record.errors.clear();
  } else {
    // Checks that build on well-formed fields come only when the fields are.
    if (record.errors.empty()) record.errors = api::Validate(record.job);
    if (record.errors.size() > api::kMostFieldErrors + 1) record.errors.resize(api::kMostFieldErrors + 1);
    for (api::FieldError& error : record.errors) {
      for (std::string* text : {&error.field, &error.value, &error.allowed}) *text = Shorten(*text, kLongestWords);
    }
    // What was refused for its length is not kept for that.
    if (api::RuleBytes(spec.restart.rules) > api::kMostRuleBytes) spec.restart.rules.clear();
    record.pod_template = TextOf(spec.pod_template);
    record.config = TextOf(spec.config);
  }
  record.volume = TextOf(spec.checkpoint.volume);
  spec.config = nullptr;
  spec.pod_template = nullptr;
  spec.checkpoint.volume = nullptr;
  return record;
}

Observed SortPods(const JobRecord& record, const std::vector<Pod>& pods) {
  Observed observed;
  observed.job = record.job;
  observed.job.spec.pod_template = ValueOf(record.pod_template);
  observed.job.spec.config = ValueOf(record.config);
  observed.job.spec.checkpoint.volume = ValueOf(record.volume);
  observed.spec_errors = record.errors;
  const api::JobStatus& status = record.job.status;
  const int64_t workers = SizeOf(record.job);
  observed.current.resize(static_cast<size_t>(workers));
  observed.done = ParseIndexSet(status.workers.done, workers);
  for (const Pod& pod : pods) {
    if (pod->owner_uid != record.job.uid) {
      if (IsOfEarlier(record.job, *pod)) observed.earlier.push_back(pod);
      continue;
    }
    if (pod->attempt == status.attempt && pod->rank >= 0 && pod->rank < workers) {
      Pod& place = observed.current[static_cast<size_t>(pod->rank)];
      // Of two the other one is a copy that someone has made, with its labels and its owner.
      if (place) observed.stale.push_back(IsOurs(record.job, *pod) ? place : pod);
      if (!place || IsOurs(record.job, *pod)) place = pod;
    } else {
      (IsSpent(*pod) ? observed.spent : observed.stale).push_back(pod);
    }
  }
  FindMissing(observed);
  return observed;
}

void FindMissing(Observed& observed) {
  observed.missing.clear();
  const auto workers = static_cast<int64_t>(observed.current.size());
  std::vector<int64_t> without;
  bool all = true;
  for (int64_t i = 0; i < workers; ++i) {
    if (observed.current[static_cast<size_t>(i)] || observed.done.contains(i)) continue;
    all &= observed.made.contains(i);
    if (!observed.coming.contains(i)) without.push_back(i);
  }
  if (all || observed.job.status.workers.created == workers) observed.missing = std::move(without);
}

}  // namespace trainyard::reconcile
