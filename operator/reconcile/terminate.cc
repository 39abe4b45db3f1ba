#include <algorithm>

#include "operator/reconcile/conditions.h"
#include "operator/reconcile/policies.h"

namespace trainyard::reconcile {
namespace {

// When the pod, which is being deleted, is overdue.
Time Overdue(const Observed& observed, const PodRecord& pod) {
  return After(*pod.gone_by, static_cast<double>(observed.job.spec.deadlines.terminate_seconds));
}

// An emptyDir goes with its pod, and fences nobody else.
bool HasFence(const api::Checkpoint& checkpoint) {
  return checkpoint.volume.is_object() && !checkpoint.volume.contains("emptyDir");
}

}  // namespace

bool IsSpent(const PodRecord& pod) { return pod.deleting && (pod.over || pod.forced); }

bool IsLost(const Observed& observed, const PodRecord& pod, Time now) {
  return pod.gone_by && !pod.end && Overdue(observed, pod) <= now;
}

void AwaitDeletions(const Observed& observed, Plan& plan, Time now) {
  for (const Pod& pod : observed.current) {
    if (pod && pod->gone_by && !pod->end) plan.RequeueIn(std::max(0.0, SecondsBetween(now, Overdue(observed, *pod))));
  }
}

void ForceOverdue(const Observed& observed, const std::vector<Pod>& pods, Plan& plan, Time now) {
  const PodRecord* first = nullptr;
  int64_t count = 0;
  for (const Pod& pod : pods) {
    if (!pod || !pod->gone_by || IsSpent(*pod) || !plan.IsDue(Overdue(observed, *pod), now)) continue;
    plan.deletes.push_back({.name = pod->name, .uid = pod->uid, .force = true});
    if (count++ == 0) first = pod.get();
  }
  if (count == 0) return;
  const bool fenced = HasFence(observed.job.spec.checkpoint);
  const std::string message =
      "pod " + first->name + (count > 1 ? " and " + std::to_string(count - 1) + " more" : std::string()) +
      (first->node.empty() ? "" : " on node " + first->node) + " should have been gone by " +
      FormatTime(*first->gone_by) + ", did not go within " +
      std::to_string(observed.job.spec.deadlines.terminate_seconds) +
      " s more (spec.deadlines.terminateSeconds), and is deleted by force; its processes may still run, " +
      (fenced ? "and the fence in the checkpoint directory keeps them from committing"
              : "and no checkpoint directory (spec.checkpoint.volume) fences them");
  plan.events.push_back({.type = "Warning", .reason = "ForceDeleted", .message = message, .of_deletes = true});
  // It stays: nobody will tell when they have ended.
  if (!fenced)
    SetCondition(plan.status, kUnfencedCondition, true, "ForceDeleted", message, now, observed.job.generation);
}

}  // namespace trainyard::reconcile
