#include "trainer/train/bits.h"

#include <gtest/gtest.h>

#include <thread>

#include "trainer/comm/in_process.h"

namespace trainyard {
namespace {

using Json = nlohmann::json;

Json Machine(const char* kernels) {
  return {{"kernels", kernels}, {"libtorch's kernels", "AVX2"}, {"CPU", "one"}, {"stage", "ddp"}, {"world", 3}};
}

// What each of the ranks says.
std::vector<std::string> Compare(const std::vector<Json>& bits) {
  auto ranks = MakeInProcessWorld(static_cast<int>(bits.size()));
  std::vector<std::string> said(bits.size());
  std::vector<std::thread> threads;
  for (size_t rank = 0; rank < bits.size(); ++rank)
    threads.emplace_back([&, rank] { said[rank] = OtherMachines(*ranks[rank], ProcessorsOf({}, bits[rank], "")); });
  for (std::thread& thread : threads) thread.join();
  return said;
}

TEST(OtherMachines, AreNamedByRankZero) {
  const auto said = Compare({Machine("avx512"), Machine("avx2"), Machine("avx512"), Machine("avx2")});
  EXPECT_TRUE(said[0].starts_with("rank 1, 3 computes on another kind of processor")) << said[0];
  for (int rank : {1, 2, 3}) EXPECT_EQ(said[static_cast<size_t>(rank)], "");
}

TEST(OtherMachines, AreNoneWhereAllAreAlike) {
  EXPECT_EQ(Compare({Machine("avx2"), Machine("avx2")}), (std::vector<std::string>{"", ""}));
}

TEST(OtherMachines, OnGpusTheGpuCountsAndTheHostOnlyWithItsOptimizer) {
  Config config;
  config.parallel.device = "cuda";
  EXPECT_EQ(ProcessorsOf(config, Machine("avx512"), "NVIDIA L4"), ProcessorsOf(config, Machine("avx2"), "NVIDIA L4"));
  EXPECT_NE(ProcessorsOf(config, Machine("avx2"), "NVIDIA T4"), ProcessorsOf(config, Machine("avx2"), "NVIDIA L4"));
  config.parallel.offload = "optimizer";
  EXPECT_NE(ProcessorsOf(config, Machine("avx512"), "NVIDIA L4"), ProcessorsOf(config, Machine("avx2"), "NVIDIA L4"));
}

TEST(BitsDifference, NamesWhatDecidesBitsAlone) {
  Json before = Machine("avx512"), now = Machine("avx2");
  before["stage"] = "zero1";
  before["threads"] = 7;
  EXPECT_EQ(BitsDifference(before, now), "; not bit-exact with an uninterrupted run, because kernels avx512 -> avx2");
  EXPECT_EQ(BitsDifference(now, now), "");
}

// What a machine or an image changes under a run.
TEST(BitsDifference, NamesAnotherProcessorAndAnotherLibTorch) {
  Plan plan;
  plan.micro = 8;
  const Json here = BitsOf({}, plan);
  EXPECT_EQ(here["LibTorch"], LoadedTorch());
  for (const char* part : {"CPU", "LibTorch", "kernels", "libtorch's kernels", "trainyard"}) {
    const auto now = here[part].get<std::string>();
    EXPECT_NE(now, "") << part;
    Json before = here;
    before[part] = "another";
    EXPECT_EQ(BitsDifference(before, here),
              std::string("; not bit-exact with an uninterrupted run, because ") + part + " another -> " + now);
    before.erase(part);
    EXPECT_EQ(BitsDifference(before, here),
              std::string("; not bit-exact with an uninterrupted run, because ") + part + " unknown -> " + now);
  }
}

}  // namespace
}  // namespace trainyard
