#include <algorithm>

#include "operator/reconcile/conditions.h"
#include "operator/reconcile/policies.h"
#include "operator/reconcile/problem.h"

namespace trainyard::reconcile {
namespace {

// The reasons, by who ends the pods: whoever collects the deleted job's garbage, or a person.
constexpr char kEarlierJob[] = "EarlierJob", kOrphanedPod[] = "OrphanedPod";

// Nobody else ends it: the deletion of its job alone has left it behind.
bool IsLeftBehind(const Pod& pod) { return pod->orphan && !pod->deleting; }

std::string WordsOf(const std::vector<Pod>& pods, bool left, int64_t attempt) {
  const auto counts = [&](const Pod& pod) { return !left || IsLeftBehind(pod); };
  const Pod& first = *std::find_if(pods.begin(), pods.end(), counts);
  const auto more = std::count_if(pods.begin(), pods.end(), counts) - 1;
  return "pod " + first->name + (more > 0 ? " and " + std::to_string(more) + " more" : std::string()) +
         " of an earlier job of this name " +
         (left ? "is left, with no job that would end it: delete it" : "has not ended yet") + "; attempt " +
         std::to_string(attempt) + " begins after that";
}

}  // namespace

bool AwaitEarlier(const Observed& observed, Plan& plan, Time now) {
  api::JobStatus& status = plan.status;
  // Beside pods that are there already nothing is gained.
  if (observed.earlier.empty() || status.workers.created > 0 || !observed.made.empty()) return false;
  const bool left = std::any_of(observed.earlier.begin(), observed.earlier.end(), IsLeftBehind);
  const char* const reason = left ? kOrphanedPod : kEarlierJob;
  const std::string message = WordsOf(observed.earlier, left, status.attempt);
  const api::Condition* before = FindCondition(status, kWorkersReadyCondition);
  // A problem with a deletion stands in its place, and comes back with each try.
  if (!before || (before->reason != reason && !IsProblem(before->reason)))
    plan.events.push_back({left ? "Warning" : "Normal", reason, message});
  SetCondition(status, kWorkersReadyCondition, false, reason, message, now, observed.job.generation);
  ForceOverdue(observed, observed.earlier, plan, now);
  return true;
}

}  // namespace trainyard::reconcile
