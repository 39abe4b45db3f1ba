#include "operator/reconcile/long_turns.h"

#include <gtest/gtest.h>

namespace trainyard::reconcile {
namespace {

using Turn = LongTurns::Turn;

TEST(LongTurns, OfANamespaceThereIsOne) {
  LongTurns turns;
  {
    const Turn first(turns, "a");
    EXPECT_TRUE(first.mine());
    { EXPECT_FALSE(Turn(turns, "a").mine()); }
    EXPECT_FALSE(Turn(turns, "a").mine()) << "who had none gives none back";
    EXPECT_TRUE(Turn(turns, "b").mine());
  }
  EXPECT_TRUE(Turn(turns, "a").mine());
}

TEST(LongTurns, ThereAreAFewInAll) {
  LongTurns turns;
  const Turn a(turns, "a"), b(turns, "b");
  {
    const Turn c(turns, "c");
    EXPECT_TRUE(c.mine());
    EXPECT_FALSE(Turn(turns, "d").mine());
  }
  EXPECT_TRUE(Turn(turns, "d").mine());
}

}  // namespace
}  // namespace trainyard::reconcile
