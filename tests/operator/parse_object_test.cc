#include "operator/kube/parse_object.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <random>
#include <string>

#include "common/json.h"
#include "operator/base/json_access.h"

namespace trainyard::kube {
namespace {

using Json = nlohmann::json;

Json ParseObject(std::string_view text, int around, const FieldPaths& unread = {}) {
  return ObjectParser(around, unread).Parse(text);
}

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

TEST(ParseObject, LeavesOutWhatNobodyReads) {
  const FieldPaths unread = {"spec.volumes", "spec.containers.env", "spec.containers.resources.limits", "status"};
  const Json object = {{"volumes", {1}},
                       {"spec",
                        {{"volumes", {{{"name", "]\"}"}}}},
                         {"env", {1}},
                         {"spec", {{"volumes", {1}}}},
                         {"containers",
                          {{{"name", "a"},
                            {"env", {{{"name", "x"}}}},
                            {"resources", {{"limits", {{"cpu", 1}}}, {"requests", {{"cpu", 2}}}}}},
                           {{"env", "no list"}, {"name", "b"}, {"volumes", {3}}}}}}},
                       {"status", {{"conditions", {1}}}}};
  Json rest = object;
  rest["spec"]["volumes"] = Json::array();
  rest["spec"]["containers"][0]["env"] = Json::array();
  rest["spec"]["containers"][0]["resources"]["limits"] = Json::object();
  rest["status"] = Json::object();
  for (const int indent : {-1, 2}) {
    EXPECT_EQ(ParseObject(object.dump(indent), 0, unread), rest);
    EXPECT_EQ(ParseObject(Json{{"object", object}, {"type", "ADDED"}}.dump(indent), 1, unread),
              (Json{{"object", rest}, {"type", "ADDED"}}));
  }
}

// Any value of a few keys, so that paths meet often.
Json Anything(std::mt19937& random, int depth) {
  const char* const texts[] = {"", "a", "]", "{\"", "\\", "\\\"}", "\n,:"};
  const int kind = depth == 0 ? static_cast<int>(random() % 3) : static_cast<int>(random() % 6);
  if (kind == 0) return texts[random() % std::size(texts)];
  if (kind == 1) return static_cast<int>(random() % 100) - 50;
  if (kind == 2) return nullptr;
  Json value = kind == 3 ? Json::array() : Json::object();
  for (unsigned i = random() % 5; i > 0; --i) {
    Json part = Anything(random, depth - 1);
    if (kind == 3) {
      value.push_back(std::move(part));
    } else {
      value[std::string(1, "abc"[random() % 3])] = std::move(part);
    }
  }
  return value;
}

// The same, by walking through the value.
void Empty(Json& value, const std::string& at, const FieldPaths& unread) {
  if (value.is_array()) {
    for (Json& item : value) Empty(item, at, unread);
  } else if (value.is_object()) {
    for (auto& [key, field] : value.items()) {
      const std::string path = at + (at.empty() ? "" : ".") + key;
      const auto found = std::find_if(unread.begin(), unread.end(), [&](const std::string& each) {
        return each == path || each.starts_with(path + "=");
      });
      const std::string read = found == unread.end() || *found == path ? "" : found->substr(path.size() + 1);
      if (found != unread.end() && field.is_structured() && (read.empty() || field.is_object())) {
        field.clear();
        continue;
      }
      for (Json& item : field) {
        const bool passed = found != unread.end() && field.is_array() && item.is_structured();
        if (passed && item.dump().find('"' + read + '"') == std::string::npos) item = nullptr;
      }
      Empty(field, path, unread);
    }
  }
}

TEST(ParseObject, IsWhatAWalkThroughTheWholeValueGives) {
  const unsigned seed = std::random_device{}();
  SCOPED_TRACE("seed " + std::to_string(seed));
  std::mt19937 random(seed);
  int shorter = 0;
  for (int round = 0; round < 3000; ++round) {
    FieldPaths unread;
    for (unsigned i = random() % 4; i > 0; --i) {
      std::string path(1, "abc"[random() % 3]);
      for (unsigned more = random() % 3; more > 0; --more) path += std::string(".") + "abc"[random() % 3];
      unread.push_back(path + (random() % 2 ? "=c" : ""));
    }
    Json value = {{"a", Anything(random, 4)}, {"b", Anything(random, 4)}};
    const std::string text = value.dump(random() % 2 ? -1 : 1);
    const Json whole = value;
    Empty(value, "", unread);
    shorter += value != whole ? 1 : 0;
    ASSERT_EQ(ParseObject(text, 0, unread), value) << text;
    ASSERT_EQ(ParseObject("{\"object\":" + text + "}", 1, unread)["object"], value) << text;
    ASSERT_TRUE(ParseObject(text.substr(0, random() % text.size()), 0, unread).is_discarded()) << text;
  }
  EXPECT_GT(shorter, 300);
}

}  // namespace
}  // namespace trainyard::kube
