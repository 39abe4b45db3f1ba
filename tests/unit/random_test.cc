#include "trainer/base/random.h"

#include <gtest/gtest.h>

#include <set>
#include <vector>

#include "trainer/data/sample_stream.h"

namespace trainyard {
namespace {

// Known answers of the authors' distribution (Random123, kat_vectors: philox4x32 10).
TEST(Philox, KnownAnswers) {
  EXPECT_EQ(Philox({0, 0, 0, 0}, 0), (PhiloxBlock{0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8}));
  EXPECT_EQ(Philox({~0u, ~0u, ~0u, ~0u}, ~0ull), (PhiloxBlock{0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd}));
  EXPECT_EQ(Philox({0x243f6a88, 0x85a308d3, 0x13198a2e, 0x03707344}, 0x299f31d0a4093822ull),
            (PhiloxBlock{0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1}));
}

TEST(KeyedRandom, SameKeySameDraws) {
  KeyedRandom a(1, "x", 2), b(1, "x", 2), other(1, "x", 3);
  for (int i = 0; i < 10; ++i) EXPECT_EQ(a.NextU32(), b.NextU32());
  EXPECT_NE(a.NextU64(), other.NextU64());
}

TEST(KeyedRandom, MomentsOfItsDistributions) {
  KeyedRandom random(3, "moments");
  double uniform = 0, normal = 0, square = 0;
  constexpr int kDraws = 200000;
  for (int i = 0; i < kDraws; ++i) {
    uniform += random.UniformDouble();
    const double x = random.Normal();
    normal += x;
    square += x * x;
  }
  // Five standard errors: 1/sqrt(12 n), 1/sqrt(n), sqrt(2/n).
  EXPECT_NEAR(uniform / kDraws, 0.5, 5 * 0.00065);
  EXPECT_NEAR(normal / kDraws, 0, 5 * 0.0023);
  EXPECT_NEAR(square / kDraws, 1, 5 * 0.0032);
}

TEST(Permutation, IsABijectionOfAnySize) {
  for (uint64_t n : {1, 2, 3, 5, 16, 17, 1000, 4097}) {
    const Permutation order(n, HashKey(7, n));
    std::set<uint64_t> seen;
    for (uint64_t i = 0; i < n; ++i) {
      const uint64_t x = order(i);
      EXPECT_LT(x, n);
      seen.insert(x);
    }
    EXPECT_EQ(seen.size(), n);
  }
}

TEST(Permutation, MixesNeighbours) {
  // The mean distance of neighbours in a random order of [0, n) is n / 3.
  constexpr uint64_t kN = 10000;
  const Permutation order(kN, 5);
  double distance = 0;
  for (uint64_t i = 0; i + 1 < kN; ++i)
    distance += std::abs(static_cast<double>(order(i)) - static_cast<double>(order(i + 1)));
  EXPECT_NEAR(distance / kN, kN / 3.0, kN * 0.02);
}

SampleStream Stream(EpochEnd end) { return {std::make_shared<PermutedOrder>(100, 9), 9, end, 16}; }

std::vector<int64_t> Ids(const SampleStream& stream, int64_t begin, int64_t count) {
  std::vector<int64_t> ids;
  for (int64_t i = 0; i < count; ++i) ids.push_back(stream.At(begin + i).id);
  return ids;
}

TEST(SampleStream, EveryEpochHoldsEverySampleOnce) {
  const SampleStream stream = Stream(EpochEnd::kCarry);
  for (int epoch = 0; epoch < 3; ++epoch) {
    const std::vector<int64_t> ids = Ids(stream, epoch * 100, 100);
    EXPECT_EQ(std::set<int64_t>(ids.begin(), ids.end()).size(), 100u);
  }
  EXPECT_NE(Ids(stream, 0, 100), Ids(stream, 100, 100));
}

TEST(SampleStream, AReadingKnowsItsEpochAndHasAKeyOfItsOwn) {
  const SampleStream stream = Stream(EpochEnd::kCarry);
  std::set<uint64_t> keys;
  for (int64_t i = 0; i < 300; ++i) {
    EXPECT_EQ(stream.At(i).epoch, i / 100);
    EXPECT_EQ(stream.At(i).position, i % 100);
    keys.insert(stream.At(i).key);
  }
  EXPECT_EQ(keys.size(), 300u) << "a sample is transformed anew in each epoch";
}

TEST(SampleStream, DropLeavesOutWhatFillsNoBatch) {
  const SampleStream stream = Stream(EpochEnd::kDrop);
  EXPECT_EQ(stream.epoch_size(), 96);
  const std::vector<int64_t> ids = Ids(stream, 96, 96);
  EXPECT_EQ(std::set<int64_t>(ids.begin(), ids.end()).size(), 96u);
}

}  // namespace
}  // namespace trainyard
