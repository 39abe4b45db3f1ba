#include "operator/reconcile/observe.h"

#include "operator/api/json.h"
#include "operator/api/validation.h"

namespace trainyard::reconcile {

JobRecord JobFromApi(const nlohmann::json& object) {
  JobRecord record;
  record.job = api::JobFromJson(object, record.errors);
  // Checks that build on well-formed fields come only when the fields are.
  if (record.errors.empty()) record.errors = api::Validate(record.job);
  return record;
}

Observed SortPods(const JobRecord& record, const std::vector<Pod>& pods) {
  Observed observed;
  observed.job = record.job;
  observed.spec_errors = record.errors;
  // An attempt keeps its size, whatever a later spec says.
  const api::JobStatus& status = record.job.status;
  const int64_t workers =
      status.attempt > 0 && status.workers.desired > 0 ? status.workers.desired : record.job.spec.workers;
  observed.current.resize(static_cast<size_t>(workers));
  observed.done = ParseIndexSet(status.workers.done, workers);
  for (const Pod& pod : pods) {
    if (pod->owner_uid != record.job.uid) {
      observed.foreign.push_back(pod);
    } else if (pod->attempt == status.attempt && pod->rank >= 0 && pod->rank < workers) {
      observed.current[static_cast<size_t>(pod->rank)] = pod;
    } else {
      observed.stale.push_back(pod);
    }
  }
  // Once all of an attempt's workers existed (status.workers.created), one without a pod has vanished.
  if (status.workers.created == workers) {
    for (int64_t i = 0; i < workers; ++i) {
      if (!observed.current[static_cast<size_t>(i)] && !observed.done.contains(i)) observed.missing.push_back(i);
    }
  }
  return observed;
}

}  // namespace trainyard::reconcile
