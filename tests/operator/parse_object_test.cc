#include "operator/kube/parse_object.h"

#include <gtest/gtest.h>

#include <string>

#include "common/json.h"
#include "operator/base/json_access.h"

namespace trainyard::kube {
namespace {

using Json = nlohmann::json;

// Who wrote which field is dropped, and nothing that only looks so.
TEST(ParseObject, LeavesOutWhoWroteWhichField) {
  const auto with = [](const Json& managed) {
    return Json{
        {"metadata", {{"annotations", {{"a", R"({"managedFields":[1]})"}}}, {"managedFields", managed}, {"name", "x"}}},
        {"spec", {{"config", {{"managedFields", {1, "]"}}}}}}};
  };
  const Json object = with({{{"manager", "a]b\\"}, {"fieldsV1", {{"f:x", {{R"(k:{"a":"]"})", Json::array()}}}}}}}),
             rest = with(Json::array());
  EXPECT_EQ(ParseObject(object.dump(), 0), rest);
  const Json event = {{"object", object}, {"type", "ADDED"}};
  EXPECT_EQ(ParseObject(event.dump(), 1)["object"], rest);
  const Json own = {{"spec", {{"config", {{"managedFields", {1}}}}}}};
  EXPECT_EQ(ParseObject(own.dump(), 0), own);
  const Json all = {{"managedFields", {1}}};
  EXPECT_EQ(ParseObject(all.dump(), 0), all);
  const std::string text = object.dump();
  for (size_t size = 0; size < text.size(); ++size)
    EXPECT_TRUE(ParseObject(text.substr(0, size), 0).is_discarded()) << size;
}

// One object that nobody can walk through says so, and is no reason not to read the others.
TEST(ParseObject, CutsWhatNestsTooDeep) {
  for (const int levels : {95, 96, 97, 5000}) {
    std::string config = "1";
    for (int i = 0; i < levels; ++i) config = i % 2 ? "[" + config + "]" : R"({"a]{\"":)" + config + "}";
    const std::string text =
        R"({"kind":"TrainingJob","metadata":{"name":"x"},"spec":{"config":)" + config + R"(,"workers":1}})";
    const Json object = ParseObject(text, 0);
    const Json event = ParseObject(R"({"type":"ADDED","object":)" + text + "}", 1);
    EXPECT_EQ(event["object"], object) << levels;
    EXPECT_EQ(object["metadata"]["name"], "x");
    EXPECT_EQ(object["spec"]["workers"], 1);
    EXPECT_EQ(object.contains(json::kCut), levels + 2 > kJsonDepth - 1) << levels;
  }
  EXPECT_TRUE(ParseObject(std::string(200, '['), 0).is_discarded());
  EXPECT_TRUE(ParseObject(R"({"type":)" + std::string(200, '['), 1).is_discarded());
}

}  // namespace
}  // namespace trainyard::kube
