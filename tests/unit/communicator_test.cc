#include "trainer/comm/communicator.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/full.h>
#include <gtest/gtest.h>

#include <thread>

#include "trainer/base/error.h"
#include "trainer/comm/c10d_native.h"
#include "trainer/comm/c10d_store.h"
#include "trainer/comm/gloo.h"
#include "trainer/comm/in_process.h"

namespace trainyard {
namespace {

// Runs `body(communicator)` in one thread per rank.
void InWorld(std::vector<std::unique_ptr<Communicator>> world, const std::function<void(Communicator&)>& body) {
  std::vector<std::thread> threads;
  for (auto& communicator : world) threads.emplace_back([&body, &communicator] { body(*communicator); });
  for (std::thread& thread : threads) thread.join();
}

std::vector<std::unique_ptr<Communicator>> GlooWorld(int size) {
  static std::vector<std::shared_ptr<C10dStore>> kept;  // the hosts; groups keep using them
  kept.push_back(std::make_shared<C10dStore>(
      C10dStoreOptions{.host = "127.0.0.1", .port = 0, .host_here = true, .listen_fd = {}}));
  const int port = kept.back()->port();
  std::vector<std::unique_ptr<Communicator>> world(static_cast<size_t>(size));
  std::vector<std::thread> threads;
  for (int rank = 0; rank < size; ++rank) {
    threads.emplace_back([&, rank] {
      // A connection of its own for each rank: one that waits holds its connection.
      const C10dStore store(C10dStoreOptions{.host = "127.0.0.1", .port = port, .host_here = false, .listen_fd = {}});
      world[static_cast<size_t>(rank)] =
          MakeGlooCommunicator(store, {.rank = rank, .size = size, .prefix = "test", .interface = "127.0.0.1"});
    });
  }
  for (std::thread& thread : threads) thread.join();
  return world;
}

using MakeWorld = std::vector<std::unique_ptr<Communicator>> (*)(int);
class CommunicatorTest : public testing::TestWithParam<std::pair<MakeWorld, int>> {
 protected:
  void Run(const std::function<void(Communicator&)>& body) { InWorld(GetParam().first(GetParam().second), body); }
};

TEST_P(CommunicatorTest, SumsGathersAndBroadcasts) {
  Run([](Communicator& c) {
    at::Tensor x = at::full({5}, c.rank() + 1.0, at::kFloat), gathered = at::empty({c.size() * 3}, at::kLong),
               mine = at::full({3}, c.rank(), at::kLong);
    at::Tensor shared = at::full({2}, c.rank(), at::kFloat);
    const auto sum = c.AllReduce(x, "x");
    const auto gather = c.AllGather(mine, gathered, "ids");
    c.Wait(c.Broadcast(shared, c.size() - 1, "weights"));
    c.Wait(sum);
    c.Wait(gather);
    EXPECT_EQ(x[4].item<float>(), static_cast<float>(c.size() * (c.size() + 1)) / 2);
    for (int64_t i = 0; i < gathered.numel(); ++i) EXPECT_EQ(gathered[i].item<int64_t>(), i / 3);
    EXPECT_EQ(shared[1].item<float>(), static_cast<float>(c.size() - 1));
  });
}

// The order of a sum is the ranks', whatever the element's place and the buffer's length.
TEST_P(CommunicatorTest, SumsDoNotDependOnTheCut) {
  Run([](Communicator& c) {
    constexpr int64_t kN = 1000;
    at::Tensor whole = at::arange(kN, at::kFloat) * 0.1f + 1e4f * static_cast<float>(c.rank() * c.rank());
    at::Tensor pieces = whole.clone();
    c.Wait(c.AllReduce(whole, "whole"));
    for (int64_t begin = 0; begin < kN;) {
      const int64_t n = std::min<int64_t>(kN - begin, 1 + begin % 97);
      c.Wait(c.AllReduce(pieces.narrow(0, begin, n), "piece"));
      begin += n;
    }
    EXPECT_TRUE(whole.equal(pieces));
  });
}

TEST_P(CommunicatorTest, ARankThatLeavesFailsTheOthers) {
  if (GetParam().second == 1) GTEST_SKIP() << "a world of one has no peers";
  auto world = GetParam().first(GetParam().second);
  world[0].reset();
  world.erase(world.begin());
  InWorld(std::move(world), [](Communicator& c) {
    EXPECT_THROW(c.Barrier("waits for rank 0"), PeerError);
    EXPECT_THROW(c.Barrier("and ever after"), PeerError);
  });
}

INSTANTIATE_TEST_SUITE_P(InProcess, CommunicatorTest,
                         testing::Values(std::pair{&MakeInProcessWorld, 1}, std::pair{&MakeInProcessWorld, 3}));
INSTANTIATE_TEST_SUITE_P(Gloo, CommunicatorTest, testing::Values(std::pair{&GlooWorld, 2}, std::pair{&GlooWorld, 3}));

TEST(C10dStore, ForgetsWhatIsDeleted) {
  C10dStore store(C10dStoreOptions{.host = "127.0.0.1", .port = 0, .host_here = true, .listen_fd = {}});
  store.Set("key", "value");
  const int64_t keys = store.native().store->getNumKeys();
  store.Delete("key");
  store.Delete("never set");
  EXPECT_FALSE(store.Get("key"));
  EXPECT_EQ(store.native().store->getNumKeys(), keys - 1);
}

}  // namespace
}  // namespace trainyard
