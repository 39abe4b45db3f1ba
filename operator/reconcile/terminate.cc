#include <algorithm>

#include "operator/reconcile/conditions.h"
#include "operator/reconcile/policies.h"

namespace trainyard::reconcile {
namespace {

// When the pod, which is being deleted, is overdue.
Time Overdue(const Observed& observed, const PodRecord& pod) {
  return After(*pod.gone_by, static_cast<double>(observed.job.spec.deadlines.terminate_seconds));
}

// The fence is our trainer's, which has answered then. An emptyDir or a generic ephemeral volume goes with its pod, and
// fences nobody else; a hostPath may be a mount that all nodes have.
bool HasFence(const TrainingJob& job) {
  const Json& volume = job.spec.checkpoint.volume;
  return volume.is_object() && !volume.contains("emptyDir") && !volume.contains("ephemeral") &&
         job.status.progress.last_update;
}

}  // namespace

bool IsSpent(const PodRecord& pod) { return pod.deleting && (pod.over || pod.forced); }

bool IsLost(const Observed& observed, const PodRecord& pod, Time now) {
  return pod.gone_by && !pod.end && Overdue(observed, pod) <= now && !observed.unproven.contains(pod.uid);
}

std::optional<double> DeletionSeconds(const Observed& observed, const PodRecord& pod) {
  if (!pod.gone_by || pod.forced || IsSpent(pod)) return std::nullopt;
  const double grace = pod.deleted_at ? SecondsBetween(*pod.deleted_at, *pod.gone_by) : 0;
  return grace + static_cast<double>(observed.job.spec.deadlines.terminate_seconds);
}

void AwaitDeletions(const Observed& observed, Plan& plan, Time now) {
  for (const Pod& pod : observed.current) {
    if (!pod || !pod->gone_by || pod->end) continue;
    const auto unproven = observed.unproven.find(pod->uid);
    const double left = unproven == observed.unproven.end() ? 0 : unproven->second;
    plan.RequeueIn(std::max(left, SecondsBetween(now, Overdue(observed, *pod))));
  }
}

void ForceOverdue(const Observed& observed, const std::vector<Pod>& pods, Plan& plan, Time now) {
  const PodRecord* first = nullptr;
  int64_t count = 0;
  for (const Pod& pod : pods) {
    if (!pod || !pod->gone_by || IsSpent(*pod) || !plan.IsDue(Overdue(observed, *pod), now)) continue;
    if (const auto left = observed.unproven.find(pod->uid); left != observed.unproven.end()) {
      plan.RequeueIn(left->second);
      continue;
    }
    plan.deletes.push_back({.name = pod->name, .uid = pod->uid, .force = true});
    if (count++ == 0) first = pod.get();
  }
  if (count == 0) return;
  // Of an earlier job's image and folder nothing is known.
  const bool fenced = HasFence(observed.job) && first->owner_uid == observed.job.uid;
  const std::string message =
      "pod " + first->name + (count > 1 ? " and " + std::to_string(count - 1) + " more" : std::string()) +
      (first->node.empty() ? "" : " on node " + first->node) + " should have been gone by " +
      FormatTime(*first->gone_by) + ", did not go within " +
      std::to_string(observed.job.spec.deadlines.terminate_seconds) +
      " s more (spec.deadlines.terminateSeconds), and is deleted by force; its processes may still run, " +
      (fenced ? "and the fence in the checkpoint directory keeps them from committing"
              : "and no fence in a checkpoint directory that nodes share keeps them from writing");
  plan.events.push_back({.type = "Warning", .reason = "ForceDeleted", .message = message, .of_deletes = true});
  // It stays: nobody will tell when they have ended.
  if (!fenced)
    SetCondition(plan.status, kUnfencedCondition, true, "ForceDeleted", message, now, observed.job.generation);
}

}  // namespace trainyard::reconcile
