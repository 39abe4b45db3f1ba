#include "operator/reconcile/index_set.h"

#include <gtest/gtest.h>

#include <random>

namespace trainyard::reconcile {
namespace {

TEST(IndexSet, RangesAreShort) {
  EXPECT_EQ(FormatIndexSet({}), "");
  EXPECT_EQ(FormatIndexSet({3}), "3");
  EXPECT_EQ(FormatIndexSet({0, 1, 2, 3, 7, 9, 10}), "0-3,7,9-10");
}

TEST(IndexSet, ReadsWhatItWrites) {
  std::mt19937 random(7);
  for (int round = 0; round < 200; ++round) {
    IndexSet indices;
    for (int64_t i = 0; i < 50; ++i) {
      if (random() % 3 != 0) indices.insert(i);
    }
    EXPECT_EQ(ParseIndexSet(FormatIndexSet(indices), 50), indices);
  }
}

TEST(IndexSet, AnythingElseIsLeftOut) {
  EXPECT_EQ(ParseIndexSet("0-9223372036854775807", 3), (IndexSet{0, 1, 2}));
  EXPECT_EQ(ParseIndexSet("x,1,-2,3-,5-4,,2 ,4", 10), (IndexSet{1, 4}));
}

}  // namespace
}  // namespace trainyard::reconcile
