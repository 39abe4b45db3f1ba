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

Json ParseObject(std::string_view text, int around, const FieldPaths& fields = {}) {
  return ObjectParser(around, fields).Parse(text);
}

// Who wrote which field is dropped, and nothing that only looks so.
TEST(ParseObject, LeavesOutWhoWroteWhichField) {
  const auto with = [](const Json& managed) {
    return Json{
        {"metadata", {{"annotations", {{"a", R"({"managedFields":[1]})"}}}, {"managedFields", managed}, {"name", "x"}}},
        {"spec", {{"config", {{"managedFields", {1, "]"}}}}}}};
  };
  const Json object = with({{{"manager", "a]b\\"}, {"fieldsV1", {{"f:x", {{R"(k:{"a":"]"})", Json::array()}}}}}}});
  Json rest = object;
  rest["metadata"].erase("managedFields");
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

TEST(ParseObject, KeepsWhatIsRead) {
  const FieldPaths fields = {"spec.containers.name", "spec.containers.env=x", "spec.containers.resources.limits",
                             "spec.volumes", "status"};
  const Json object = {{"kind", "Pod"},
                       {"metadata", {{"name", "a"}, {"managedFields", {1}}}},
                       {"spec",
                        {{"volumes", {{{"name", "]\"}"}}}},
                         {"env", {1}},
                         {"spec", {{"volumes", {1}}}},
                         {"containers",
                          {{{"name", "a"},
                            {"env", {{{"name", "x"}}, {{"name", "y"}}, "x", 7}},
                            {"resources", {{"limits", {{"cpu", 1}}}, {"requests", {{"cpu", 2}}}}}},
                           {{"env", "no list"}, {"name", "b"}, {"volumes", {3}}},
                           "no object"}}}},
                       {"status", {{"conditions", {1}}}}};
  const Json rest = {{"kind", "Pod"},
                     {"metadata", {{"name", "a"}}},
                     {"spec",
                      {{"volumes", {{{"name", "]\"}"}}}},
                       {"containers",
                        {{{"name", "a"}, {"env", {{{"name", "x"}}, "x"}}, {"resources", {{"limits", {{"cpu", 1}}}}}},
                         {{"env", "no list"}, {"name", "b"}},
                         "no object"}}}},
                     {"status", {{"conditions", {1}}}}};
  for (const int indent : {-1, 2}) {
    EXPECT_EQ(ParseObject(object.dump(indent), 0, fields), rest);
    EXPECT_EQ(ParseObject(Json{{"object", object}, {"type", "ADDED"}}.dump(indent), 1, fields),
              (Json{{"object", rest}, {"type", "ADDED"}}));
  }
}

// Whoever reads a part of the objects still sees why a watch ended, and where it is.
TEST(ParseObject, KeepsWhatAWatchGoesBy) {
  const FieldPaths fields = {"metadata.name", "spec.a", "status.phase"};
  const Json failure = {{"type", "ERROR"},
                        {"object",
                         {{"kind", "Status"},
                          {"metadata", Json::object()},
                          {"status", "Failure"},
                          {"message", "too old"},
                          {"reason", "Expired"},
                          {"code", 410}}}};
  EXPECT_EQ(ParseObject(failure.dump(), 1, fields), failure);
  Json event = {{"type", "MODIFIED"},
                {"object", {{"metadata", {{"name", "a"}, {"resourceVersion", "7"}, {"annotations", {{"b", "c"}}}}}}}};
  const Json read = ParseObject(event.dump(), 1, fields);
  event["object"]["metadata"]["annotations"] = Json::object();
  EXPECT_EQ(read, event);
}

// Also where it would not be read: an answer that was cut off is no answer.
TEST(ParseObject, WhatIsNoJsonIsNone) {
  for (const char* text : {"", " ", "{", "}", "[1,]", R"({"a" 1})", R"({"a":})", R"({"a":1,})", R"({,"a":1})",
                           R"({"a":1 "b":2})", R"({a:1})", R"({"a":1}})", R"({"a":1} 2)", R"({"a":"b)", R"({"b":)",
                           R"({"b":[1,2})", R"({"a":tru})", R"({"a":[1 2]})", R"({"c":[}])"}) {
    EXPECT_TRUE(ParseObject(text, 0).is_discarded()) << text;
    EXPECT_TRUE(ParseObject(text, 0, {"a", "c.d"}).is_discarded()) << text;
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
Json Kept(const Json& value, const std::string& at, const FieldPaths& fields) {
  const auto any = [&](const auto& is) { return std::any_of(fields.begin(), fields.end(), is); };
  const bool whole = any([&](const std::string& path) { return at == path || at.starts_with(path + "."); });
  const bool through = any([&](const std::string& path) { return path.starts_with(at + "."); });
  const bool some = any([&](const std::string& path) { return path.starts_with(at + "="); });
  if (whole || !value.is_structured() || (some && (through || value.is_object()))) return value;
  Json kept = value.is_array() ? Json::array() : Json::object();
  if (value.is_array()) {
    for (const Json& item : value) {
      if (!some) kept.push_back(Kept(item, at, fields));
      if (some && item.dump().find("\"c\"") != std::string::npos) kept.push_back(item);
    }
    return kept;
  }
  for (const auto& [key, field] : value.items()) {
    const std::string path = at.empty() ? key : at + "." + key;
    const auto reads = [&](const std::string& each) {
      return each == path || path.starts_with(each + ".") || each.starts_with(path + ".") ||
             each.starts_with(path + "=");
    };
    if (any(reads)) {
      kept[key] = Kept(field, path, fields);
    } else if (at.empty()) {
      kept[key] = field;
    }
  }
  return kept;
}

TEST(ParseObject, IsWhatAWalkThroughTheWholeValueGives) {
  const unsigned seed = std::random_device{}();
  SCOPED_TRACE("seed " + std::to_string(seed));
  std::mt19937 random(seed);
  int shorter = 0;
  for (int round = 0; round < 5000; ++round) {
    FieldPaths fields;
    for (unsigned i = random() % 5; i > 0; --i) {
      std::string path(1, "abc"[random() % 3]);
      for (unsigned more = random() % 3; more > 0; --more) path += std::string(".") + "abc"[random() % 3];
      fields.push_back(path + (random() % 3 == 0 ? "=c" : ""));
    }
    SCOPED_TRACE(Json(fields).dump());
    const Json value = {{"a", Anything(random, 4)}, {"b", Anything(random, 4)}};
    const std::string text = value.dump(random() % 2 ? -1 : 1);
    const Json kept = Kept(value, "", fields);
    shorter += value != kept ? 1 : 0;
    ASSERT_EQ(ParseObject(text, 0, fields), kept) << text;
    ASSERT_EQ(ParseObject("{\"object\":" + text + "}", 1, fields)["object"], kept) << text;
    ASSERT_TRUE(ParseObject(text.substr(0, random() % text.size()), 0, fields).is_discarded()) << text;
  }
  EXPECT_GT(shorter, 500);
}

}  // namespace
}  // namespace trainyard::kube
