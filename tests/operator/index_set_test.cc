#include "operator/reconcile/index_set.h"

#include <gtest/gtest.h>

#include <random>
#include <set>

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

// Whatever the order in which they come, and however often.
TEST(IndexSet, HoldsWhatASetHolds) {
  for (unsigned seed = 1; seed <= 100; ++seed) {
    std::mt19937 random(seed);
    IndexSet indices;
    std::set<int64_t> expected;
    for (int i = 0; i < 40; ++i) {
      const auto index = static_cast<int64_t>(random() % 50);
      indices.insert(index);
      expected.insert(index);
      ASSERT_EQ(indices.size(), expected.size()) << "seed " << seed;
    }
    for (int64_t i = -1; i <= 50; ++i)
      EXPECT_EQ(indices.contains(i), expected.contains(i)) << "seed " << seed << ", " << i;
    for (size_t i = 1; i < indices.ranges().size(); ++i)
      EXPECT_GT(indices.ranges()[i].first, indices.ranges()[i - 1].last + 1) << "seed " << seed;
  }
}

TEST(IndexSet, RangesJoin) {
  IndexSet indices{0, 4, 8, 12};
  indices.insert({3, 9});
  EXPECT_EQ(FormatIndexSet(indices), "0,3-9,12");
  indices.insert({1, 2});
  EXPECT_EQ(FormatIndexSet(indices), "0-9,12");
}

TEST(IndexSet, AnythingElseIsLeftOut) {
  EXPECT_EQ(ParseIndexSet("0-9223372036854775807", 3), (IndexSet{0, 1, 2}));
  EXPECT_EQ(ParseIndexSet("x,1,-2,3-,5-4,,2 ,4", 10), (IndexSet{1, 4}));
  EXPECT_EQ(ParseIndexSet("4-6,1,5-8,8", 10), (IndexSet{4, 5, 6, 8})) << "what goes back is not what is written";
}

// A status of a megabyte and a half, whose every part names all the workers there can be: counted once.
TEST(IndexSet, RepeatedRangesAreCountedOnce) {
  std::string text = "0-9999";
  while (text.size() < 1'500'000) text += ",0-9999";
  EXPECT_EQ(ParseIndexSet(text, 10000).size(), 10000u);
}

}  // namespace
}  // namespace trainyard::reconcile
