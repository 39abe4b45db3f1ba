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

}  // namespace
}  // namespace trainyard::reconcile
