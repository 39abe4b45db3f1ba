#include <gtest/gtest.h>

#include "operator/reconcile/conditions.h"
#include "operator/reconcile/policies.h"
#include "operator/reconcile/worker_pod.h"
#include "tests/operator/builders.h"

namespace trainyard::reconcile {
namespace {

// The status after one failure on `node`.
api::JobStatus FailOn(const std::string& node, api::JobStatus status, Time now = kNow, bool disrupted = false,
                      int64_t code = 70) {
  Scene scene(1, std::max<int64_t>(1, status.attempt));
  const int64_t attempt = scene.status().attempt;
  if (status.attempt > 0) scene.status() = status;
  scene.status().attempt = attempt;
  scene.spec().restart.max_restarts = 1000;
  scene.status().workers.created = scene.status().workers.desired = 1;
  PodRecord& pod = scene.Ended(0, code);
  pod.node = node;
  pod.disrupted = disrupted;
  return scene.Decide(now).status;
}

TEST(AvoidNodes, CountsCulpritsByTheirNode) {
  const api::JobStatus once = FailOn("a", {});
  ASSERT_EQ(once.avoided_nodes.size(), 1u);
  EXPECT_EQ(once.avoided_nodes[0].failures, 1);
  const api::JobStatus twice = FailOn("a", FailOn("b", once));
  ASSERT_EQ(twice.avoided_nodes.size(), 2u);
  EXPECT_EQ(twice.avoided_nodes[0].node, "a");
  EXPECT_EQ(twice.avoided_nodes[0].failures, 2);
  EXPECT_EQ(twice.avoided_nodes[0].until, After(kNow, 3600));
}

TEST(AvoidNodes, ForgetsInTime) {
  const api::JobStatus later = FailOn("b", FailOn("a", {}), After(kNow, 3601));
  ASSERT_EQ(later.avoided_nodes.size(), 1u);
  EXPECT_EQ(later.avoided_nodes[0].node, "b");
}

TEST(AvoidNodes, AnAttemptThatBeginsForFreeForgetsInTimeToo) {
  const api::JobStatus monday = FailOn("a", {});
  EXPECT_EQ(FailOn("b", monday, After(kNow, 3599), true).avoided_nodes.size(), 1u);
  EXPECT_TRUE(FailOn("b", monday, After(kNow, 3600), true).avoided_nodes.empty());
}

TEST(AvoidNodes, ADisruptionOrAStopIsNoFaultOfTheNode) {
  EXPECT_TRUE(FailOn("a", {}, kNow, true).avoided_nodes.empty());
  EXPECT_TRUE(FailOn("a", {}, kNow, false, 75).avoided_nodes.empty());
  EXPECT_TRUE(FailOn("a", {}, kNow, false, 69).avoided_nodes.empty()) << "it lost a peer, which was elsewhere";
  EXPECT_TRUE(FailOn("", {}).avoided_nodes.empty()) << "it never had one";
}

TEST(AvoidNodes, KeepsNoMoreThanItsBound) {
  api::JobStatus status = FailOn("a", {});
  for (int i = 0; i < 100; ++i) status = FailOn("n" + std::to_string(i), status, After(kNow, i));
  EXPECT_EQ(status.avoided_nodes.size(), 64u);
  EXPECT_EQ(status.avoided_nodes.back().node, "n99") << "the oldest go";
}

TEST(AvoidNodes, IsSaidOnce) {
  Scene scene(1);
  scene.Ended(0, 70).node = "a";
  EXPECT_EQ(scene.Decide().events.size(), 1u);
  scene.status().avoided_nodes = {{.node = "a", .failures = 1, .until = After(kNow, 10)}};
  const Plan second = scene.Decide();
  ASSERT_EQ(second.events.size(), 2u);
  EXPECT_EQ(second.events[0].reason, "NodeAvoided");
  EXPECT_EQ(second.events[0].message,
            "node a had 2 culprits (spec.restart.avoidNodes): later attempts avoid it until 2026-03-01T13:00:00Z");
}

Json AffinityOf(const Json& own) {
  Scene scene(1, 3);
  scene.status().avoided_nodes = {{.node = "a", .failures = 2, .until = kNow},
                                  {.node = "b", .failures = 1, .until = kNow},
                                  {.node = "c", .failures = 3, .until = kNow}};
  if (!own.is_null()) scene.spec().pod_template["spec"]["affinity"] = own;
  return WorkerPod(scene.job(), 3, 0, "")["spec"].value("affinity", Json());
}

TEST(AvoidNodes, ThePodRequiresAnotherNode) {
  const Json a = {{"key", "metadata.name"}, {"operator", "NotIn"}, {"values", {"a"}}};
  const Json c = {{"key", "metadata.name"}, {"operator", "NotIn"}, {"values", {"c"}}};
  const auto with_terms = [](Json terms) {
    return Json{{"nodeAffinity", {{"requiredDuringSchedulingIgnoredDuringExecution", {{"nodeSelectorTerms", terms}}}}}};
  };
  EXPECT_EQ(AffinityOf(nullptr), with_terms({{{"matchFields", {a, c}}}}));
  // One term that matches is enough, so each has to have it; one without requirements matches nothing.
  const Json zone = {{"key", "zone"}, {"operator", "In"}, {"values", {"z"}}};
  const Json field = {{"key", "metadata.name"}, {"operator", "In"}, {"values", {"n"}}};
  EXPECT_EQ(
      AffinityOf(with_terms({{{"matchExpressions", {zone}}}, {{"matchFields", {field}}}, Json::object()})),
      with_terms(
          {{{"matchExpressions", {zone}}, {"matchFields", {a, c}}}, {{"matchFields", {field, a, c}}}, Json::object()}));
  const Json apart = {{"podAntiAffinity", {{"x", 1}}}, {"nodeAffinity", {{"preferred", {1}}}}};
  const Json merged = AffinityOf(apart);
  EXPECT_EQ(merged["podAntiAffinity"], apart["podAntiAffinity"]);
  EXPECT_EQ(merged["nodeAffinity"]["preferred"], apart["nodeAffinity"]["preferred"]);
}

TEST(AvoidNodes, AJobWithoutBadNodesKeepsItsTemplate) {
  Scene scene(1, 1);
  EXPECT_FALSE(WorkerPod(scene.job(), 1, 0, "")["spec"].contains("affinity"));
}

TEST(AvoidNodes, IsDroppedWhereItLeavesNoNode) {
  Scene scene(1, 3);
  scene.status().avoided_nodes = {{.node = "a", .failures = 2, .until = After(kNow, 3000)}};
  PodRecord& pod = scene.Pod(0);
  pod.scheduled = pod.ready = false;
  pod.created = kNow;
  pod.waiting_reason = "Unschedulable";
  pod.waiting_message = "0/1 nodes are available";
  const Plan wait = scene.Decide(After(kNow, 119));
  EXPECT_EQ(wait.status.attempt, 3);
  EXPECT_LE(wait.requeue_after_seconds.value_or(1e9), 1);
  const Plan plan = scene.Decide(After(kNow, 120));
  EXPECT_EQ(plan.status.attempt, 4);
  EXPECT_EQ(plan.status.restarts.total, 0) << "nothing failed";
  EXPECT_TRUE(plan.status.avoided_nodes.empty());
  ASSERT_EQ(plan.events.size(), 1u);
  EXPECT_EQ(plan.events[0].message,
            "pod job-3-0 finds no node: 0/1 nodes are available; the 1 nodes of status.avoidedNodes are forgotten, and "
            "another attempt begins");
  scene.status().avoided_nodes[0].failures = 1;
  EXPECT_EQ(scene.Decide(After(kNow, 1000)).status.attempt, 3) << "no node is avoided: the cluster is full";
}

}  // namespace
}  // namespace trainyard::reconcile
