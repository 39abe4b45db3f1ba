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
