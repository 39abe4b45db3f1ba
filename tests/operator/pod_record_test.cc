#include <gtest/gtest.h>

#include "tests/operator/builders.h"

namespace trainyard::reconcile {
namespace {

TEST(PodRecord, AnyStatusIsRead) {
  const char* pods[] = {
      "3", "null", R"({"metadata":[],"status":"x"})",
      R"({"status":{"conditions":[null,{"type":3}],"containerStatuses":[{"name":null,"state":{"terminated":{"exitCode":"1","finishedAt":null}}}]}})"};
  for (const char* pod : pods) EXPECT_EQ(PodFromJson(Json::parse(pod)).rank, -1) << pod;
}

TEST(PodRecord, APortThatIsNoneIsNotAsked) {
  for (const char* value : {"", "x", "65536", "-1", "99999999999999999999"}) {
    const Json pod = {
        {"spec",
         {{"containers",
           Json::array(
               {{{"name", "c"}, {"env", Json::array({{{"name", "TRAINYARD_STATUS_PORT"}, {"value", value}}})}}})}}}};
    EXPECT_EQ(PodFromJson(pod).status_port, 0) << value;
  }
}

TEST(PodRecord, ADeletionWasAskedForBeforeItsGrace) {
  const Json pod = {
      {"metadata", {{"deletionTimestamp", "2026-03-01T12:01:00Z"}, {"deletionGracePeriodSeconds", 60}}},
      {"status",
       {{"phase", "Running"},
        {"conditions",
         Json::array(
             {{{"type", "DisruptionTarget"}, {"status", "True"}, {"reason", "Why"}, {"message", "because"}}})}}}};
  const PodRecord record = PodFromJson(pod);
  EXPECT_EQ(record.deleted_at, kNow);
  EXPECT_EQ(record.disruption, "Why: because");
  EXPECT_FALSE(record.over);
}

TEST(PodRecord, ADeletionWasNotAskedForBeforeThePodWasThere) {
  Json pod = {{"metadata",
               {{"creationTimestamp", "2026-03-01T12:00:00Z"},
                {"deletionTimestamp", "2026-03-01T12:01:00Z"},
                {"deletionGracePeriodSeconds", 1000000000000}}}};
  EXPECT_FALSE(PodFromJson(pod).deleted_at);
  pod["metadata"]["deletionGracePeriodSeconds"] = 60;
  EXPECT_EQ(PodFromJson(pod).deleted_at, kNow);
}

// The kubelet takes away what has ended, without grace, and the API server writes the time of that.
TEST(PodRecord, WhenAForcedDeletionWasAskedForIsUnknown) {
  const PodRecord record =
      PodFromJson({{"metadata", {{"deletionTimestamp", "2026-03-01T12:00:00Z"}, {"deletionGracePeriodSeconds", 0}}}});
  EXPECT_TRUE(record.deleting);
  EXPECT_TRUE(record.forced);
  EXPECT_FALSE(record.deleted_at);
  EXPECT_EQ(record.gone_by, kNow);
}

// A kubelet tells of the ends first, and of the phase when it has taken the pod apart: seconds later on a busy machine.
// A pod that was deleted in between would lose its logs.
TEST(PodRecord, IsOverWhenEveryContainerHasEnded) {
  const Json ended = {{"terminated", {{"exitCode", 0}}}}, runs = {{"running", Json::object()}};
  const auto over = [](const Json& trainer, const Json& sidecar, const char* phase) {
    return PodFromJson({{"spec", {{"containers", {{{"name", "trainer"}}, {{"name", "sidecar"}}}}}},
                        {"status",
                         {{"phase", phase},
                          {"containerStatuses",
                           {{{"name", "trainer"}, {"state", trainer}}, {{"name", "sidecar"}, {"state", sidecar}}}}}}})
        .over;
  };
  EXPECT_FALSE(over(ended, runs, "Running"));
  EXPECT_TRUE(over(ended, ended, "Running"));
  EXPECT_TRUE(over(ended, runs, "Failed")) << "evicted";
  EXPECT_FALSE(PodFromJson({{"status", {{"phase", "Pending"}}}}).over);
}

// A sidecar of the initContainers is told to end behind the others, and may still be writing: its worker has ended, its
// pod has not.
TEST(PodRecord, ASidecarThatRunsKeepsItFromBeingOver) {
  const Json trainer = {{"name", "trainer"}, {"state", {{"terminated", {{"exitCode", 0}}}}}};
  const auto read = [&](const Json& uploader, const char* phase) {
    return PodFromJson({{"metadata", {{"deletionTimestamp", "2026-03-01T12:01:00Z"}}},
                        {"spec",
                         {{"containers", {{{"name", "trainer"}}}},
                          {"initContainers", {{{"name", "uploader"}, {"restartPolicy", "Always"}}}}}},
                        {"status",
                         {{"phase", phase},
                          {"containerStatuses", Json::array({trainer})},
                          {"initContainerStatuses", {{{"name", "uploader"}, {"state", uploader}}}}}}});
  };
  const PodRecord running = read({{"running", Json::object()}}, "Running");
  EXPECT_FALSE(running.over);
  EXPECT_TRUE(running.end) << "the worker's end is its trainer's";
  EXPECT_TRUE(read({{"terminated", {{"exitCode", 0}}}}, "Running").over);
  EXPECT_TRUE(read({{"running", Json::object()}}, "Succeeded").over) << "the kubelet's last word";
}

TEST(PodRecord, WhatPodsHaveInCommonIsHeldOnce) {
  TextPool texts;
  const auto pod = [&](const std::string& name, const std::string& node) {
    return PodFromJson(
        {{"metadata", {{"name", name}, {"namespace", "default"}, {"labels", {{"trainyard.dev/job-name", "job"}}}}},
         {"spec", {{"nodeName", node}}},
         {"status",
          {{"conditions",
            Json::array({{{"type", "Ready"}, {"status", "True"}}, {{"type", "Gate"}, {"status", "False"}}})}}}},
        texts);
  };
  const PodRecord a = pod("a", "one"), b = pod("b", "one"), c = pod("c", "two");
  EXPECT_EQ(&a.node.str(), &b.node.str());
  EXPECT_EQ(&a.job_key.str(), &c.job_key.str());
  EXPECT_EQ(a.job_key, "default/job");
  EXPECT_EQ(texts.size(), 4u);
  EXPECT_TRUE(a.HasCondition("Ready"));
  EXPECT_FALSE(a.HasCondition("Gate"));
  EXPECT_FALSE(a.HasCondition("Read"));
  EXPECT_FALSE(a.HasCondition(""));
}

// Nodes and jobs come and go for years.
TEST(TextPool, LetsGoOfWhatNobodyHolds) {
  TextPool texts;
  const SharedText held = texts.Keep("held");
  for (int i = 0; i < 100000; ++i) texts.Keep("node-" + std::to_string(i));
  EXPECT_LE(texts.size(), 2048u);
  EXPECT_EQ(&texts.Keep("held").str(), &held.str());
}

}  // namespace
}  // namespace trainyard::reconcile
