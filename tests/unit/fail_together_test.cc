#include "trainer/comm/fail_together.h"

#include <gtest/gtest.h>
#include <sys/resource.h>

#include <atomic>
#include <cstdlib>
#include <string>
#include <thread>
#include <vector>

#include "trainer/base/error.h"
#include "trainer/base/message.h"
#include "trainer/comm/in_process.h"
#include "trainer/comm/rank_zero.h"

namespace trainyard {
namespace {

std::string FirstLineOf(const std::exception_ptr& error) {
  try {
    if (error) std::rethrow_exception(error);
    return "";
  } catch (const PeerError& e) {
    return std::string("peer: ") + e.what();
  } catch (const std::exception& e) {
    return e.what();
  }
}

// What `body(communicator)` threw in each rank, "" for nothing.
template <class Body>
std::vector<std::string> InWorld(int size, const Body& body) {
  auto world = MakeInProcessWorld(size);
  std::vector<std::string> thrown(static_cast<size_t>(size));
  std::vector<std::jthread> threads;
  for (int rank = 0; rank < size; ++rank) {
    threads.emplace_back([&, rank] {
      try {
        body(*world[static_cast<size_t>(rank)]);
      } catch (...) {
        thrown[static_cast<size_t>(rank)] = FirstLineOf(std::current_exception());
      }
    });
  }
  threads.clear();
  return thrown;
}

using Errors = std::vector<std::string>;

TEST(FailTogether, NobodyFailsWhereNobodyHas) {
  const Errors thrown = InWorld(3, [](Communicator& c) {
    for (int i = 0; i < 3; ++i) FailTogether(c, nullptr, "this step");
  });
  EXPECT_EQ(thrown, Errors({"", "", ""}));
}

TEST(FailTogether, TheCauseReachesEveryRankAndItsOwnTypeStays) {
  const Errors thrown = InWorld(4, [](Communicator& c) {
    const bool bad = c.rank() == 1 || c.rank() == 3;
    FailTogether(c, bad ? std::make_exception_ptr(DataError("a-\xc3\xa4 " + std::to_string(c.rank()))) : nullptr, "it");
  });
  const std::string told = "peer: rank 1 failed in it: a-\xc3\xa4 1";
  EXPECT_EQ(thrown, Errors({told, "a-\xc3\xa4 1", told, "a-\xc3\xa4 3"}));
}

TEST(FailTogether, AMessageOfNothingAndOneWithoutEndArrive) {
  Errors thrown = InWorld(2, [](Communicator& c) {
    FailTogether(c, c.rank() == 1 ? std::make_exception_ptr(DataError("")) : nullptr, "it");
  });
  EXPECT_EQ(thrown[0], "peer: rank 1 failed in it: ");
  thrown = InWorld(2, [](Communicator& c) {
    const std::string text(1 << 20, 'x');
    FailTogether(c, c.rank() == 0 ? std::make_exception_ptr(DataError(text)) : nullptr, "it");
  });
  EXPECT_LT(thrown[1].size(), 5000) << "what travels is cut";
}

TEST(FailTogether, AnotherRanksMemoryIsNotOurs) {
  const Errors thrown = InWorld(2, [](Communicator& c) {
    const std::runtime_error cause(
        "[enforce] DefaultCPUAllocator: you tried to allocate 1073741824 bytes\nframe #0: x");
    FailTogether(c, c.rank() == 1 ? std::make_exception_ptr(cause) : nullptr, "it");
  });
  EXPECT_EQ(thrown[0], "peer: rank 1 failed in it: out of memory: 1.0 GiB more could not be had");
  EXPECT_FALSE(FailedAllocation(PeerError(thrown[0] + ", DefaultCPUAllocator"))) << "it has not failed here";
}

TEST(FailedAllocation, KnowsTheWordsOfAGpusAllocator) {
  const std::runtime_error error(
      "CUDA out of memory. Tried to allocate 2.50 GiB. GPU 0 has a total capacity of 79 GiB");
  EXPECT_EQ(FailedAllocation(error), "out of the GPU's memory: 2.5 GiB more could not be had");
}

// Its own process: the limit stays.
TEST(FailedAllocationDeathTest, NamesALimitOfTheProcessAndKnowsOneDNNsWordsBehindIt) {
  const std::runtime_error kernel("could not create a primitive");
  EXPECT_FALSE(FailedAllocation(kernel)) << "without a limit it may be anything";
  const auto limited = [&] {
    const rlimit data{size_t{64} << 30, size_t{64} << 30};
    setrlimit(RLIMIT_DATA, &data);
    std::_Exit(FailedAllocation(kernel) == "out of memory (ulimit -d: 64.0 GiB)" &&
                       CodeOf(kernel) == ExitCode::kOutOfMemory
                   ? 0
                   : 1);
  };
  EXPECT_EXIT(limited(), testing::ExitedWithCode(0), "");
}

TEST(FailTogether, AnErrorIsThrownAlsoWhereNobodyIsLeftToHearOfIt) {
  auto world = MakeInProcessWorld(2);
  world[0].reset();
  EXPECT_THROW(FailTogether(*world[1], std::make_exception_ptr(DataError("mine")), "it"), DataError);
  EXPECT_THROW(FailTogether(*world[1], nullptr, "it"), PeerError);
}

TEST(RankZero, TheOthersWaitAsLongAsItGetsOnOneWorkAfterTheOther) {
  auto store = std::make_shared<MemoryStore>();
  std::atomic<int> done{0};
  const Errors thrown = InWorld(3, [&](Communicator& c) {
    // Works of more than the silence, in which signs come.
    RankZero zero(store, c, {.silence = std::chrono::seconds(2)});
    for (int i = 1; i <= 2; ++i) {
      zero.Do("writing it", [&](const Tick& tick) {
        for (int beat = 0; beat < 25; ++beat) {
          tick();
          std::this_thread::sleep_for(std::chrono::milliseconds(100));
        }
        ++done;
      });
      EXPECT_EQ(done, i);
    }
  });
  EXPECT_EQ(thrown, Errors({"", "", ""}));
  EXPECT_FALSE(store->Get("rank-zero/over")) << "nothing stays in the store";
}

TEST(RankZero, ItsFailureIsTheirs) {
  auto store = std::make_shared<MemoryStore>();
  const Errors thrown = InWorld(2, [&](Communicator& c) {
    RankZero(store, c, {}).Do("writing it", [](const Tick&) { throw StorageError("no space"); });
  });
  EXPECT_EQ(thrown, Errors({"no space", "peer: rank 0 failed in writing it: no space"}));
}

TEST(RankZero, ItsSilenceEndsTheWait) {
  auto store = std::make_shared<MemoryStore>();
  std::atomic<bool> left{false};
  const Errors thrown = InWorld(2, [&](Communicator& c) {
    try {
      RankZero(store, c, {.silence = std::chrono::seconds(1)}).Do("writing it", [&](const Tick&) {
        for (int i = 0; i < 60000 && !left; ++i) std::this_thread::sleep_for(std::chrono::milliseconds(1));
        throw StorageError("at last");
      });
    } catch (const PeerError& error) {
      EXPECT_NE(std::string(error.what()).find("waited for writing it, and heard nothing of rank 0"),
                std::string::npos);
      left = true;
      // A rank that leaves: who comes later finds nobody.
      FailTogether(c, std::make_exception_ptr(PeerError("gone")), "leaving");
    }
  });
  EXPECT_EQ(thrown, Errors({"at last", "peer: gone"})) << "before rank 0 was done";
}

}  // namespace
}  // namespace trainyard
