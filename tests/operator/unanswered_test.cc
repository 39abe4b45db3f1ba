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
  unanswered.Answered("a");
  EXPECT_EQ(unanswered.MayNotAsk("a"), "");
  EXPECT_EQ(unanswered.MayNotAsk("a"), "");
}

TEST(Unanswered, FourThatAskedTogetherAreOneSilence) {
  TestClock clock;
  Unanswered unanswered(clock);
  for (int i = 0; i < 4; ++i) unanswered.NotAnswered("a", "a webhook hangs");
  clock.now = After(clock.now, 10);
  EXPECT_EQ(unanswered.MayNotAsk("a"), "");
}

}  // namespace
}  // namespace trainyard::reconcile
