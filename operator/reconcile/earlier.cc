#include <algorithm>

#include "operator/reconcile/conditions.h"
#include "operator/reconcile/policies.h"

namespace trainyard::reconcile {
namespace {

constexpr char kEarlierJob[] = "EarlierJob";

// Nobody else ends it: the deletion of its job alone has left it behind.
bool IsLeftBehind(const Pod& pod) { return pod->owner_uid.empty() && !pod->deleting; }

std::string WordsOf(const std::vector<Pod>& pods, int64_t attempt) {
  const auto left = std::find_if(pods.begin(), pods.end(), IsLeftBehind);
  const Pod& pod = left != pods.end() ? *left : pods.front();
  const std::string more = pods.size() > 1 ? " and " + std::to_string(pods.size() - 1) + " more" : "";
  return "pod " + pod->name + more + " of an earlier job of this name " +
         (left != pods.end() ? "runs on, with no job that would end it: delete it" : "has not ended yet") +
         "; attempt " + std::to_string(attempt) + " begins after that";
}

}  // namespace

bool AwaitsEarlier(const Observed& observed, Plan& plan, Time now) {
  api::JobStatus& status = plan.status;
  // Beside pods that are there already nothing is gained.
  if (observed.earlier.empty() || status.workers.created > 0 || !observed.made.empty()) return false;
  const api::Condition* before = FindCondition(status, kWorkersReadyCondition);
  const std::string message = WordsOf(observed.earlier, status.attempt);
  if (!before || before->reason != kEarlierJob) {
    const bool needs = std::any_of(observed.earlier.begin(), observed.earlier.end(), IsLeftBehind);
    plan.events.push_back({needs ? "Warning" : "Normal", kEarlierJob, message});
  }
  SetCondition(status, kWorkersReadyCondition, false, kEarlierJob, message, now, observed.job.generation);
  ForceOverdue(observed, observed.earlier, plan, now);
  return true;
}

}  // namespace trainyard::reconcile
