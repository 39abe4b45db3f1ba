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

}  // namespace
}  // namespace trainyard::reconcile
