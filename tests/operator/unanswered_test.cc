#include "operator/reconcile/unanswered.h"

#include <gtest/gtest.h>

#include "tests/operator/builders.h"

namespace trainyard::reconcile {
namespace {

class TestClock : public Clock {
 public:
  Time Now() const override { return now; }
  Time now = kNow;
};

TEST(Unanswered, IsAskedAgainLessAndLessOften) {
  TestClock clock;
  Unanswered unanswered(clock);
  EXPECT_EQ(unanswered.MayNotAsk("a"), "");
  for (const int delay : {10, 20, 40, 80, 160, 300, 300}) {
    unanswered.NotAnswered("a", "a webhook hangs");
    EXPECT_EQ(unanswered.MayNotAsk("a"), "a webhook hangs");
    clock.now = After(clock.now, delay - 1);
    EXPECT_EQ(unanswered.MayNotAsk("a"), "a webhook hangs") << delay;
    EXPECT_EQ(unanswered.MayNotAsk("b"), "") << "another tenant's";
    clock.now = After(clock.now, 1);
    EXPECT_EQ(unanswered.MayNotAsk("a"), "") << delay;
    EXPECT_EQ(unanswered.MayNotAsk("a"), "a webhook hangs") << "one asks at a time";
    clock.now = After(clock.now, 5);  // that is how long it takes
  }
  unanswered.Answered("a", 0.1);
  EXPECT_EQ(unanswered.MayNotAsk("a"), "");
  EXPECT_EQ(unanswered.MayNotAsk("a"), "");
}

// A webhook may hang for thirty seconds, which is longer than the first wait.
TEST(Unanswered, NoOtherAsksUntilTheOneWhoDoesHasHeard) {
  TestClock clock;
  Unanswered unanswered(clock);
  unanswered.NotAnswered("a", "a webhook hangs");
  clock.now = After(clock.now, 10);
  EXPECT_EQ(unanswered.MayNotAsk("a"), "");
  clock.now = After(clock.now, 29);
  EXPECT_EQ(unanswered.MayNotAsk("a"), "a webhook hangs");
  unanswered.NotAsked("a");  // it had something else to do first
  EXPECT_EQ(unanswered.MayNotAsk("a"), "") << "another may, at once";
  EXPECT_EQ(unanswered.MayNotAsk("a"), "a webhook hangs");
}

TEST(Unanswered, FourThatAskedTogetherAreOneSilence) {
  TestClock clock;
  Unanswered unanswered(clock);
  for (int i = 0; i < 4; ++i) unanswered.NotAnswered("a", "a webhook hangs");
  clock.now = After(clock.now, 10);
  EXPECT_EQ(unanswered.MayNotAsk("a"), "");
}

// A webhook that hangs, and whose pods are made all the same.
TEST(Unanswered, ASlowOneIsAskedByOneAtATime) {
  TestClock clock;
  Unanswered unanswered(clock);
  unanswered.Answered("a", 10);
  EXPECT_TRUE(unanswered.IsSlow("a"));
  EXPECT_FALSE(unanswered.IsSlow("b"));
  for (int i = 0; i < 3; ++i) {
    EXPECT_EQ(unanswered.MayNotAsk("a"), "") << "at once, with no wait that grows";
    EXPECT_NE(unanswered.MayNotAsk("a").find("takes 10 s"), std::string::npos);
    unanswered.Answered("a", 10);
  }
  EXPECT_EQ(unanswered.MayNotAsk("a"), "");
  clock.now = After(clock.now, 30);  // whoever asked has never said how it went
  EXPECT_EQ(unanswered.MayNotAsk("a"), "");
  unanswered.Answered("a", 1);
  EXPECT_FALSE(unanswered.IsSlow("a"));
  EXPECT_EQ(unanswered.MayNotAsk("a"), "");
  EXPECT_EQ(unanswered.MayNotAsk("a"), "");
}

}  // namespace
}  // namespace trainyard::reconcile
