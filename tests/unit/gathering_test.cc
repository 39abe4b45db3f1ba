#include "trainer/comm/gathering.h"

#include <gtest/gtest.h>

#include <atomic>
#include <random>
#include <thread>
#include <vector>

#include "trainer/base/error.h"

namespace trainyard {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

// Runs a function on each of `size` threads as its rank; returns how each ended (exit codes).
template <class F>
std::vector<ExitCode> OnRanks(int size, F body) {
  std::vector<ExitCode> codes(static_cast<size_t>(size));
  std::vector<std::thread> threads;
  for (int rank = 0; rank < size; ++rank) {
    threads.emplace_back([&, rank] {
      try {
        body(rank);
      } catch (const Error& error) {
        codes[static_cast<size_t>(rank)] = error.code();
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  return codes;
}

TEST(Gather, EveryoneReturns) {
  MemoryStore store;
  EXPECT_EQ(OnRanks(5, [&](int rank) { Gather(store, rank, 5, seconds(60), {}); }),
            std::vector<ExitCode>(5, ExitCode::kDone));
}

TEST(Gather, NamesTheFirstThatIsMissing) {
  MemoryStore store;
  store.Add("here/0", 1);
  try {
    Gather(store, 1, 3, milliseconds(30), {});
    FAIL();
  } catch (const PeerError& error) {
    EXPECT_EQ(std::string(error.what()),
              "waited 0.0s for all ranks to join (parallel.rendezvous_seconds): rank 2 of 3 is not there");
  }
}

TEST(Gather, ASecondOneOfARankIsRefusedAndCountsNothing) {
  MemoryStore store;
  EXPECT_EQ(OnRanks(2, [&](int rank) { Gather(store, rank, 2, seconds(60), {}); }),
            std::vector<ExitCode>(2, ExitCode::kDone));
  EXPECT_THROW(Gather(store, 1, 2, seconds(60), {}), StrangerError);
  EXPECT_EQ(store.Add("come", 0), 2);
}

TEST(Gather, SaysThatOneOfAnotherWorldCame) {
  MemoryStore store;
  store.Set(kStrangerKey, "ranks 3");
  try {
    Gather(store, 0, 2, milliseconds(30), {});
    FAIL();
  } catch (const PeerError& error) {
    EXPECT_TRUE(std::string(error.what()).ends_with("rank 1 of 2 is not there; one of another world was: ranks 3"));
  }
}

TEST(Gather, NamesAllThatAreMissing) {
  const auto problem = [](int size) -> std::string {
    MemoryStore store;
    try {
      Gather(store, 0, size, milliseconds(30), {});
    } catch (const PeerError& error) {
      return error.what();
    }
    return "";
  };
  EXPECT_TRUE(problem(3).ends_with(": ranks 1, 2 of 3 are not there")) << problem(3);
  EXPECT_TRUE(problem(20).ends_with(": ranks 1, 2, 3, 4, 5, 6, 7, 8, ... of 20 are not there")) << problem(20);
}

TEST(Gather, AStopWhileOneIsMissing) {
  MemoryStore store;
  EXPECT_THROW(Gather(store, 0, 2, seconds(60), [] { return true; }), StoppedError);
}

TEST(Gather, OneThatHasGoneIsNeverJoined) {
  // Rank 0 stops before rank 1 comes: rank 1, the last, must not believe that all are there.
  auto store = std::make_shared<MemoryStore>();
  WorldStore world(store, "w/");
  EXPECT_THROW(Gather(world, 0, 2, seconds(60), [] { return true; }), StoppedError);
  world.SayEnded(0, "stopped on request");
  try {
    Gather(world, 1, 2, seconds(60), {});
    FAIL();
  } catch (const PeerError& error) {
    EXPECT_STREQ(error.what(), "rank 0 has ended: stopped on request");
  }
}

// The first has left and the last has come: their number looks as if all were there, and nobody will say so.
TEST(Gather, AStopIsNoPeersFailure) {
  MemoryStore store;
  EXPECT_THROW(Gather(store, 0, 3, milliseconds(1), {}), PeerError);
  EXPECT_THROW(Gather(store, 1, 3, milliseconds(1), {}), PeerError);
  store.Add("come", 1);  // the third
  EXPECT_THROW(Gather(store, 3, 4, seconds(60), [] { return true; }), StoppedError);
}

TEST(Gather, AllReturnOrNoneWhateverTheMoment) {
  std::random_device device;
  const unsigned seed = device();
  SCOPED_TRACE("seed " + std::to_string(seed));
  std::mt19937 random(seed);
  int together = 0, apart = 0;
  for (int round = 0; round < 300; ++round) {
    constexpr int kRanks = 3;
    auto memory = std::make_shared<MemoryStore>();
    std::vector<int> pauses(kRanks);
    for (int& pause : pauses) pause = static_cast<int>(random() % 400);
    const int stopped = static_cast<int>(random() % kRanks), moment = static_cast<int>(random() % 400);
    const auto start = std::chrono::steady_clock::now();
    const std::vector<ExitCode> codes = OnRanks(kRanks, [&](int rank) {
      std::this_thread::sleep_for(std::chrono::microseconds(pauses[static_cast<size_t>(rank)]));
      WorldStore world(memory, "w/");
      try {
        Gather(world, rank, kRanks, seconds(60), [&] {
          return rank == stopped && std::chrono::steady_clock::now() - start > std::chrono::microseconds(moment);
        });
      } catch (const Error& error) {
        world.SayEnded(rank, error.what());
        throw;
      }
    });
    const auto done = std::count(codes.begin(), codes.end(), ExitCode::kDone);
    ASSERT_TRUE(done == 0 || done == kRanks) << "round " << round << ": " << done;
    ++(done == 0 ? apart : together);
  }
  EXPECT_GT(together, 0);
  EXPECT_GT(apart, 0) << "no stop came in time: the rounds prove nothing";
}

TEST(WorldStore, AWaitEndsWithTheRankThatIsWaitedFor) {
  auto memory = std::make_shared<MemoryStore>();
  auto world = std::make_shared<WorldStore>(memory, "w/");
  PrefixStore attempt(world, "attempt-1/");
  std::thread failing([&] {
    std::this_thread::sleep_for(milliseconds(30));
    world->SayEnded(0, "no room");
    world->SayEnded(2, "a consequence");
  });
  try {
    attempt.Wait("key", seconds(60), "rank 0");
    ADD_FAILURE();
  } catch (const PeerError& error) {
    EXPECT_STREQ(error.what(), "rank 0 has ended: no room");
  }
  failing.join();
  attempt.Set("key", "value");
  EXPECT_EQ(attempt.Wait("key", seconds(60), "rank 0"), "value") << "what was set before the end counts";
}

TEST(WorldStore, OneOfThoseWhoEndTogetherIsNamed) {
  struct SlowStore : MemoryStore {
    std::optional<std::string> Get(const std::string& key) override {
      auto value = MemoryStore::Get(key);
      std::this_thread::sleep_for(milliseconds(50));
      return value;
    }
    void Set(const std::string& key, const std::string& value) override {
      if (key == "w/ended") ++named;
      MemoryStore::Set(key, value);
    }
    std::atomic<int> named{0};
  };
  const auto store = std::make_shared<SlowStore>();
  WorldStore world(store, "w/");
  OnRanks(8, [&](int rank) { world.SayEnded(rank, "out of memory"); });
  EXPECT_EQ(store->named, 1);
}

}  // namespace
}  // namespace trainyard
