#include <algorithm>

#include "operator/reconcile/conditions.h"
#include "operator/reconcile/culprit.h"
#include "operator/reconcile/policies.h"

namespace trainyard::reconcile {
namespace {

// So long pods may find no node before those that are avoided are allowed again: a scheduler, and one who adds nodes,
// get that time.
constexpr double kNoNodeSeconds = 120;
// More than these are no bad nodes.
constexpr size_t kMaxNodes = 64;

bool IsAvoided(const api::AvoidedNode& node, const api::AvoidNodes& policy) {
  return node.failures >= policy.after_failures;
}

bool IsUnschedulable(const Pod& pod) {
  return pod && !pod->scheduled && !pod->end && !pod->deleting && pod->waiting_reason == "Unschedulable";
}

}  // namespace

bool HasUnschedulable(const Observed& observed) {
  return std::any_of(observed.current.begin(), observed.current.end(), IsUnschedulable);
}

void ForgetOldNodes(api::JobStatus& status, Time now) {
  std::erase_if(status.avoided_nodes, [&](const api::AvoidedNode& node) { return node.until.value_or(now) <= now; });
}

void NoteCulprit(const Observed& observed, const FailedWorker& culprit, Plan& plan, Time now) {
  const api::AvoidNodes& policy = observed.job.spec.restart.avoid_nodes;
  std::vector<api::AvoidedNode>& nodes = plan.status.avoided_nodes;
  ForgetOldNodes(plan.status, now);  // a culprit of today does not add to those of last week
  const std::string& name = culprit.failure.node;
  if (policy.for_seconds == 0 || name.empty() || culprit.disrupted) return;
  if (culprit.failure.exit_code == 69) return;  // PeerFailed: whom it lost is somewhere else
  auto found =
      std::find_if(nodes.begin(), nodes.end(), [&](const api::AvoidedNode& node) { return node.node == name; });
  if (found == nodes.end()) {
    if (nodes.size() == kMaxNodes)
      nodes.erase(
          std::min_element(nodes.begin(), nodes.end(), [](const auto& a, const auto& b) { return a.until < b.until; }));
    found = nodes.insert(nodes.end(), {.node = name, .failures = 0, .until = std::nullopt});
  }
  ++found->failures;
  found->until = After(now, static_cast<double>(policy.for_seconds));
  if (found->failures == policy.after_failures)
    plan.events.push_back({"Warning", "NodeAvoided",
                           "node " + name + " had " + std::to_string(found->failures) +
                               " culprits (spec.restart.avoidNodes): later attempts avoid it until " +
                               FormatTime(*found->until)});
}

bool FindsNoNode(const Observed& observed, Plan& plan) {
  const api::AvoidNodes& policy = observed.job.spec.restart.avoid_nodes;
  const auto& nodes = observed.job.status.avoided_nodes;
  if (std::none_of(nodes.begin(), nodes.end(), [&](const auto& node) { return IsAvoided(node, policy); })) return false;
  if (!HasUnschedulable(observed)) return false;
  const double left = kNoNodeSeconds - observed.unschedulable_seconds;
  if (left > 0) plan.RequeueIn(left);
  return left <= 0;
}

Plan AllowAllNodes(const Observed& observed, Plan plan, Time now) {
  const auto stuck = std::find_if(observed.current.begin(), observed.current.end(), IsUnschedulable);
  const std::string message = "pod " + (*stuck)->name + " finds no node: " + (*stuck)->waiting_message + "; the " +
                              std::to_string(plan.status.avoided_nodes.size()) +
                              " nodes of status.avoidedNodes are forgotten, and another attempt begins";
  NextAttempt(observed, plan, now);
  plan.status.avoided_nodes.clear();
  plan.status.phase = api::kPending;
  SetCondition(plan.status, kScheduledCondition, false, "AvoidedNodesForgotten", message, now, observed.job.generation);
  plan.events.push_back({"Warning", "AvoidedNodesForgotten", message});
  return plan;
}

}  // namespace trainyard::reconcile
