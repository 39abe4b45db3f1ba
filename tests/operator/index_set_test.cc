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
