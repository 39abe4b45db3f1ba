#include "trainer/task/algorithm_distillation/windows.h"

#include <gtest/gtest.h>

#include "trainer/base/error.h"

namespace trainyard::ad {
namespace {

// One task, two streams; the action of step t is t % 5 and its state (t % 9, stream).
Histories Numbered(int64_t length) {
  Histories histories(1, 2, length);
  for (int64_t s = 0; s < 2; ++s) {
    for (int64_t t = 0; t < length; ++t) {
      histories.at(0, s)[static_cast<size_t>(t)] = {static_cast<uint8_t>(t % 9),
                                                    static_cast<uint8_t>(s),
                                                    static_cast<uint8_t>(t % 5),
                                                    0,
                                                    0,
                                                    0,
                                                    static_cast<uint8_t>(t % 20 == 19),
                                                    0};
    }
  }
  return histories;
}

Options Choose(const char* mode, const char* loss, int64_t context) {
  Options options;
  options.mode = mode;
  options.loss = loss;
  options.model.context = context;
  return options;
}

TEST(Windows, StandardAsksAfterTheWholeWindow) {
  const Histories histories = Numbered(100);
  const Windows windows(histories, {0}, {DarkRoom{}}, Choose("standard", "last_position", 10));
  EXPECT_EQ(windows.size(), 2 * 91);
  const Window window = windows.at(91 + 5);  // second stream, start 5
  ASSERT_EQ(window.rows.size(), 9u);
  EXPECT_EQ(window.rows[0].step, &histories.at(0, 1)[5]);
  ASSERT_EQ(window.queries.size(), 1u);
  EXPECT_EQ(window.queries[0].visible, 9);
  EXPECT_EQ(window.queries[0].action, 14 % 5);
  EXPECT_EQ(window.queries[0].state, 14 % 9 * 9 + 1);
}

TEST(Windows, EveryPositionAsksAfterEachPrefix) {
  const Histories histories = Numbered(100);
  const Windows windows(histories, {0}, {DarkRoom{}}, Choose("standard", "every_position", 10));
  const Window window = windows.at(0);
  ASSERT_EQ(window.queries.size(), 10u);
  for (int i = 0; i < 10; ++i) {
    EXPECT_EQ(window.queries[static_cast<size_t>(i)].visible, i);
    EXPECT_EQ(window.queries[static_cast<size_t>(i)].action, i % 5) << "the action of the step behind the prefix";
  }
}

TEST(Windows, CompressedRegions) {
  const Histories histories = Numbered(200);  // two whole regions
  const Windows windows(histories, {0}, {DarkRoom{}}, Choose("compressed", "last_position", 164));
  EXPECT_EQ(windows.size(), 2 * 2 * 81);
  const Window first = windows.at(3);  // region 0, three steps in: no region before
  ASSERT_EQ(first.rows.size(), 4u);
  EXPECT_EQ(first.rows[0].kind, kStartToken);
  EXPECT_EQ(first.queries[0].visible, 4);
  EXPECT_EQ(first.queries[0].action, 3);
  EXPECT_EQ(first.queries[0].token_type, 0);
  const Window last = windows.at(81 + 80);  // region 1 complete: asks for the token
  ASSERT_EQ(last.rows.size(), 1u + 80 + 1 + 1 + 80);
  EXPECT_EQ(last.rows[81].kind, kEndToken);
  EXPECT_EQ(last.rows[82].kind, kStartToken);
  EXPECT_EQ(last.queries[0].action, kIgnored);
  EXPECT_EQ(last.queries[0].token_type, kEndToken);
  EXPECT_EQ(last.queries[0].visible, 163);
  EXPECT_EQ(last.queries[0].state, 160 % 9 * 9 + 0);
}

TEST(Windows, TooShortHistoriesAreNamed) {
  const Histories histories = Numbered(9);
  EXPECT_THROW(Windows(histories, {0}, {DarkRoom{}}, Choose("standard", "last_position", 10)), DataError);
}

}  // namespace
}  // namespace trainyard::ad
