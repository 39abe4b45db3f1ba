#include "common/json.h"

#include <gtest/gtest.h>

#include <string>

namespace trainyard {
namespace {

std::string Nested(int depth) {
  const auto n = static_cast<size_t>(depth);
  return std::string(n, '[') + std::string(n, ']');
}

TEST(ParseJson, LimitsTheDepth) {
  EXPECT_FALSE(ParseJson(Nested(kJsonDepth)).is_discarded());
  EXPECT_TRUE(ParseJson(Nested(kJsonDepth + 1)).is_discarded());
  EXPECT_TRUE(ParseJson(Nested(1'000'000)).is_discarded());
  EXPECT_TRUE(ParseJson(std::string(100'000, '[')).is_discarded());
  std::string objects;
  for (int i = 0; i < 1000; ++i) objects += "{\"a\":";
  EXPECT_TRUE(ParseJson(objects + "1" + std::string(1000, '}')).is_discarded());
}

TEST(ParseJson, BracketsInTextsAreNoDepth) {
  const std::string text = std::string(1000, '[') + R"(\"{{\\)";
  EXPECT_EQ(ParseJson("[\"" + text + "\", [1]]")[1][0], 1);
  std::string siblings = "[1";
  for (int i = 0; i < 1000; ++i) siblings += ",[]";
  EXPECT_EQ(ParseJson(siblings + "]").size(), 1001u);
}

TEST(ParseJson, WhatIsNoJsonIsDiscarded) {
  for (const char* text : {"", "nonsense", "{\"a\":", "\"\\", "]", "[1]]", "\"a", "\xff"})
    EXPECT_TRUE(ParseJson(text).is_discarded()) << text;
}

}  // namespace
}  // namespace trainyard
