// From the caches to Observed: every pod in exactly one place.
#ifndef TRAINYARD_OPERATOR_RECONCILE_OBSERVE_H_
#define TRAINYARD_OPERATOR_RECONCILE_OBSERVE_H_

#include <vector>

#include "operator/kube/store.h"
#include "operator/reconcile/plan.h"

namespace trainyard::reconcile {

// What the operator keeps of a TrainingJob: of one that has ended nothing will be made, and it keeps neither template
// and config, which are most of its text, nor what is wrong with its spec.
struct JobRecord {
  TrainingJob job;  // but for the following of its spec, which SortPods fills in
  // As JSON: a tree of small values takes up to 25 times as much.
  std::string pod_template, config, volume;  // volume: the checkpoint's
  bool apart = false;                        // template and config are too long to be kept: only the API has them
  std::vector<api::FieldError> errors;       // of decoding and validation
};
JobRecord JobFromApi(const nlohmann::json& object);
// With template and config, however long.
JobRecord WholeFromApi(const nlohmann::json& object);
// Of a job what WholeFromApi's template and config, its identity and its status come from; and what its identity, its
// status, and whether it is suspended do. A tenant decides how much the rest is, and sixteen workers may look at once.
kube::FieldPaths FieldsOfWhole(), FieldsOfConfirmed();

using JobStore = kube::Store<JobRecord>;
using PodStore = kube::Store<PodRecord>;

// Sorts `pods` by owner, attempt and rank.
Observed SortPods(const JobRecord& record, const std::vector<Pod>& pods);
// Once all of an attempt's workers have had a pod, by the status or by what this process has made, one without a pod
// has lost it: `missing`. To be called again when `made` and `coming` are known.
void FindMissing(Observed& observed);

}  // namespace trainyard::reconcile

#endif  // TRAINYARD_OPERATOR_RECONCILE_OBSERVE_H_
