#include "trainer/parallel/flat_layout.h"

#include <gtest/gtest.h>

namespace trainyard {
namespace {

std::vector<ParameterSpec> Example() {
  return {{"a", {10, 10}, UnitId{0}, {}}, {"b", {3}, UnitId{0}, {}}, {"c", {200}, UnitId{1}, {}}};
}

TEST(FlatLayout, AlignsParametersAndUnits) {
  const FlatLayout layout(Example(), 3);
  EXPECT_EQ(layout.range(0), (Range{0, 100}));
  EXPECT_EQ(layout.range(1), (Range{128, 131}));
  EXPECT_EQ(layout.range(2), (Range{192, 392}));  // a new unit starts at a multiple of 64 x 3
  EXPECT_EQ(layout.total() % (64 * 3), 0);
}

TEST(FlatLayout, EachElementBelongsToOneRankAndEachBucketToAll) {
  for (int world : {1, 2, 3, 5}) {
    for (int64_t bytes : {1, 3000, 1 << 20}) {
      const FlatLayout layout(Example(), world);
      std::vector<int> owners(static_cast<size_t>(layout.total()));
      for (int rank = 0; rank < world; ++rank) {
        EXPECT_EQ(layout.Owned(rank, bytes).size(), layout.Buckets(bytes).size());
        for (const Range& range : layout.Owned(rank, bytes)) {
          EXPECT_EQ(range.size() % 64, 0);
          for (int64_t i = range.begin; i < range.end; ++i) ++owners[static_cast<size_t>(i)];
        }
      }
      EXPECT_EQ(owners, std::vector<int>(owners.size(), 1)) << world << " ranks, buckets of " << bytes;
    }
  }
}

TEST(FlatLayout, BucketsRunFromTheEndAndCoverAll) {
  for (int64_t bytes : {1, 300, 1000, 1 << 20}) {
    const FlatLayout layout(Example(), 2);
    int64_t end = layout.total();
    for (const Range& bucket : layout.Buckets(bytes)) {
      EXPECT_EQ(bucket.end, end);
      EXPECT_EQ(bucket.size() % 128, 0);
      EXPECT_GT(bucket.size(), 0);
      end = bucket.begin;
    }
    EXPECT_EQ(end, 0);
  }
}

}  // namespace
}  // namespace trainyard
