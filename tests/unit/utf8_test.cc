#include "trainer/base/utf8.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <random>

#include "common/text.h"

namespace trainyard {
namespace {

TEST(ValidUtf8, LeavesTextAndReplacesTheRest) {
  EXPECT_EQ(ValidUtf8("a\xC3\xA9\xE2\x82\xAC\xF0\x9F\x9A\x82"), "a\xC3\xA9\xE2\x82\xAC\xF0\x9F\x9A\x82");
  const std::string mark = "\xEF\xBF\xBD";
  EXPECT_EQ(ValidUtf8("a\xFFz"), "a" + mark + "z");
  EXPECT_EQ(ValidUtf8("\xC3"), mark) << "cut short";
  EXPECT_EQ(ValidUtf8("\xC0\x80"), mark + mark) << "overlong";
  EXPECT_EQ(ValidUtf8("\xED\xA0\x80"), mark + mark + mark) << "half of a pair";
}

TEST(Cut, LeavesNoHalfOfACharacter) {
  const std::string train = "\xF0\x9F\x9A\x82", text = "ab" + train + "c";
  for (size_t bytes = 2; bytes < 6; ++bytes) EXPECT_EQ(Cut(text, bytes), "ab");
  EXPECT_EQ(Cut(text, 6), "ab" + train);
  EXPECT_EQ(Cut(text, 7), text);
  EXPECT_EQ(Cut(text, 100), text);
  EXPECT_EQ(Cut(train, 3), "");
}

TEST(ValidUtf8, GivesWhatJsonTakes) {
  std::mt19937 random(7);
  for (int i = 0; i < 2000; ++i) {
    std::string text(20, ' ');
    for (char& c : text) c = static_cast<char>(random());
    EXPECT_NO_THROW(nlohmann::json(ValidUtf8(text)).dump());
  }
}

}  // namespace
}  // namespace trainyard
