// trainer/cuda/nccl_collectives.cc over fake_gpu.h: the order of calls, deadlines and errors. What NCCL itself does, no
// test here shows (docs/gpu.md).
#include "trainer/cuda/nccl_collectives.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <thread>

#include "tests/cuda/fake_gpu.h"
#include "tests/unit/collectives_contract.h"
#include "trainer/base/error.h"

namespace trainyard {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;
using Clock = std::chrono::steady_clock;

// The stream that this thread computes on.
thread_local cudaStream_t current = nullptr;

struct Options {
  std::chrono::duration<double> rendezvous{20}, collective{20}, abort{5};
  std::function<std::string()> who_is_silent = {};
  std::function<void(const std::string&)> stuck = {};
};

struct Stream {
  Stream() { cudaStreamCreateWithPriority(&native, 0, 0); }
  ~Stream() { cudaStreamDestroy(native); }
  Stream(const Stream&) = delete;
  Stream& operator=(const Stream&) = delete;
  cudaStream_t native = nullptr;
};

// One rank of a world, on a thread of its own.
struct Rank {
  Rank(int rank, int size, const std::shared_ptr<Store>& store, const Options& options) {
    current = stream.native;
    collectives = MakeNcclCollectives(store, {.rank = rank,
                                              .size = size,
                                              .rendezvous_timeout = options.rendezvous,
                                              .collective_timeout = options.collective,
                                              .current_stream = [] { return current; },
                                              .who_is_silent = options.who_is_silent,
                                              .stuck = options.stuck,
                                              .abort_timeout = options.abort,
                                              .recorder = &recorder,
                                              .group = "tensors"});
  }
  Collectives& operator*() { return *collectives; }
  void Synchronize() { cudaStreamSynchronize(stream.native); }

  Stream stream;
  FlightRecorder recorder;
  std::unique_ptr<Collectives> collectives;
};

void InWorld(int size, const std::function<void(Rank&)>& body, const Options& options = {}) {
  const auto store = std::make_shared<MemoryStore>();
  std::vector<std::thread> threads;
  for (int rank = 0; rank < size; ++rank) {
    threads.emplace_back([&, rank] {
      Rank one(rank, size, store, options);
      body(one);
    });
  }
  for (std::thread& thread : threads) thread.join();
}

std::ptrdiff_t CountOf(const std::string& call) {
  const std::vector<std::string> calls = fake_gpu::Calls();
  return std::ranges::count(calls, call);
}

std::string MessageOf(const std::function<void()>& call) {
  try {
    call();
  } catch (const std::exception& error) {
    return error.what();
  }
  return "nothing was thrown";
}

class NcclWorld : public testing::TestWithParam<int> {};

TEST_P(NcclWorld, SumsGathersAndBroadcasts) {
  fake_gpu::Reset();
  InWorld(GetParam(), [](Rank& rank) { contract::SumsGathersAndBroadcasts(*rank, [&] { rank.Synchronize(); }); });
}

TEST_P(NcclWorld, AnySizeAndTypeIsSummedAndSharedOut) {
  fake_gpu::Reset();
  InWorld(GetParam(),
          [](Rank& rank) { contract::AnySizeAndTypeIsSummedAndSharedOut(*rank, [&] { rank.Synchronize(); }); });
}

// With calls that NCCL has not taken yet when they return, and collectives that take their time.
TEST_P(NcclWorld, CollectivesEndInTheirOrder) {
  fake_gpu::Script script;
  for (int rank = 0; rank < GetParam(); ++rank) {
    for (uint64_t i = 0; i < 20; ++i)
      script.faults[{rank, i}] = {.latency = milliseconds((rank * 7 + static_cast<int>(i) * 3) % 11),
                                  .polls = static_cast<int>(i % 4)};
  }
  fake_gpu::Reset(script);
  InWorld(GetParam(), [](Rank& rank) { contract::CollectivesEndInTheirOrder(*rank, [&] { rank.Synchronize(); }); });
}

INSTANTIATE_TEST_SUITE_P(Nccl, NcclWorld, testing::Values(1, 2, 3));

// The device's order alone: the host never waits.
TEST(Nccl, ACollectiveComesBehindWhatComputesAndBeforeWhatReadsIt) {
  fake_gpu::Reset();
  InWorld(2, [](Rank& rank) {
    at::Tensor x = at::full({4}, -1.0, at::kFloat);
    float seen = 0;
    std::atomic<bool> go{false};
    fake_gpu::Launch(rank.stream.native, [&] {
      while (!go) std::this_thread::yield();
      x.fill_((*rank).rank() + 1);
    });
    const auto begin = Clock::now();
    (*rank).Wait((*rank).AllReduce(x, "x"));
    fake_gpu::Launch(rank.stream.native, [&] { seen = x[0].item<float>(); });
    EXPECT_LT(Clock::now() - begin, seconds(5));
    EXPECT_EQ(seen, 0);
    go = true;
    rank.Synchronize();
    EXPECT_EQ(seen, 3);
  });
}

// The runtime keeps "not ready" as the thread's last error, which the next check behind a launch would take for its
// own.
TEST(Nccl, AskingWhetherACollectiveIsOverLeavesNoError) {
  fake_gpu::Script script;
  for (int rank : {0, 1}) script.faults[{rank, 0}] = {.latency = milliseconds(300)};
  fake_gpu::Reset(script);
  InWorld(2, [](Rank& rank) {
    const auto ticket = (*rank).AllReduce(at::full({4}, 1.0, at::kFloat), "x");
    EXPECT_FALSE((*rank).Done(ticket));
    EXPECT_EQ(cudaGetLastError(), cudaSuccess);
    (*rank).Wait(ticket);
    rank.Synchronize();
    EXPECT_TRUE((*rank).Done(ticket));
  });
}

TEST(Nccl, ACommunicatorIsMadeWithoutBlockingAndClosedInOrder) {
  fake_gpu::Reset();
  InWorld(2, [](Rank& rank) { (*rank).Wait((*rank).AllReduce(at::full({1}, 1.0, at::kFloat), "x")); });
  for (const std::string rank : {"0", "1"}) {
    const std::vector<std::string> calls = fake_gpu::Calls();
    std::vector<std::string> mine;
    for (const std::string& call : calls) {
      if (call.find(" " + rank) != std::string::npos) mine.push_back(call.substr(0, call.find(' ')));
    }
    EXPECT_EQ(mine, (std::vector<std::string>{"init", "enqueue", "finalize", "destroy"}));
  }
  EXPECT_EQ(CountOf("init 0"), 1) << "it blocks";
}

TEST(Nccl, ARankThatDoesNotComeIsWaitedForUntilTheDeadline) {
  fake_gpu::Reset();
  const auto store = std::make_shared<MemoryStore>();
  const auto begin = Clock::now();
  const std::string rank0 = MessageOf([&] { Rank(0, 2, store, {.rendezvous = milliseconds(300)}); });
  EXPECT_EQ(rank0, "connecting rank 0 of 2 over NCCL failed: not answered within 0.3s (parallel.rendezvous_seconds)");
  EXPECT_EQ(CountOf("abort 0"), 1);
  EXPECT_THROW(Rank(1, 2, std::make_shared<MemoryStore>(), {.rendezvous = milliseconds(300)}), PeerError);
  EXPECT_LT(Clock::now() - begin, seconds(5));
}

// The verdict is asked for before the communicator goes, and the abort ends what the device waits for.
TEST(Nccl, ACollectiveThatHangsFailsAtItsDeadlineAndIsAborted) {
  fake_gpu::Script script;
  script.faults[{1, 1}] = {.hangs = true};
  fake_gpu::Reset(script);
  std::atomic<int> asked{0};
  const Options options{.collective = milliseconds(500), .who_is_silent = [&] {
                          EXPECT_EQ(CountOf("abort 0"), asked == 0 ? 0 : CountOf("abort 0"));
                          ++asked;
                          return std::string("rank 1 never entered it");
                        }};
  InWorld(
      2,
      [](Rank& rank) {
        at::Tensor x = at::full({4}, 1.0, at::kFloat);
        (*rank).Wait((*rank).AllReduce(x, "bucket 0"));
        const auto begin = Clock::now();
        (*rank).Wait((*rank).AllReduce(x, "bucket 1"));
        rank.Synchronize();  // as the consensus does: the abort ends it
        EXPECT_LT(Clock::now() - begin, seconds(5));
        EXPECT_EQ(MessageOf([&] { (*rank).Wait(0); }),
                  "a collective failed: all_reduce (bucket 1): not answered within 0.5s "
                  "(parallel.collective_seconds); rank 1 never entered it");
        EXPECT_THROW((*rank).AllReduce(x, "bucket 2"), PeerError);
        EXPECT_THROW((*rank).ThrowIfFailed(), PeerError);
        EXPECT_EQ(rank.recorder.Now().groups.at("tensors").entered, 2U);
        EXPECT_EQ(rank.recorder.Now().groups.at("tensors").ended, 1U);
      },
      options);
  EXPECT_EQ(asked, 2);
  for (const char* call : {"abort 0", "abort 1"}) EXPECT_EQ(CountOf(call), 1);
  for (const char* call : {"finalize 0", "destroy 1"}) EXPECT_EQ(CountOf(call), 0) << "of what was aborted";
}

// A long step is no hang: the deadline of a collective begins when the one before it is over.
TEST(Nccl, ADeadlineIsThatOfOneCollective) {
  fake_gpu::Script script;
  for (uint64_t i = 0; i < 6; ++i) script.faults[{0, i}] = {.latency = milliseconds(250)};
  fake_gpu::Reset(script);
  InWorld(2,
          [](Rank& rank) {
            at::Tensor x = at::full({4}, 1.0, at::kFloat);
            for (int i = 0; i < 5; ++i) (*rank).AllReduce(x, "x");
            (*rank).Wait((*rank).AllReduce(x, "x"));
            rank.Synchronize();
            (*rank).Wait(0);
          },
          {.collective = milliseconds(1000)});
}

TEST(Nccl, WhatNcclReportsFailsEveryRankAtOnce) {
  fake_gpu::Script script;
  script.faults[{0, 0}] = {.async = ncclRemoteError};
  script.peers_notice_abort = true;
  fake_gpu::Reset(script);
  InWorld(2, [](Rank& rank) {
    at::Tensor x = at::full({4}, 1.0, at::kFloat);
    const auto begin = Clock::now();
    (*rank).Wait((*rank).AllReduce(x, "bucket 0"));
    rank.Synchronize();
    EXPECT_EQ(
        MessageOf([&] { (*rank).Wait(0); }),
        "a collective failed: all_reduce (bucket 0): remote process exited or there was a network error: said the "
        "fake");
    EXPECT_THROW((*rank).Wait(0), PeerError);
    EXPECT_LT(Clock::now() - begin, seconds(5)) << "not at the deadline";
  });
}

TEST(Nccl, AnErrorOfACallIsNotBlamedOnAPeer) {
  fake_gpu::Script script;
  script.faults[{0, 0}] = {.enqueue = ncclInternalError};
  script.faults[{1, 0}] = {.enqueue = ncclInvalidUsage};
  fake_gpu::Reset(script);
  InWorld(2, [](Rank& rank) {
    const auto submit = [&] { (*rank).AllReduce(at::full({1}, 1.0, at::kFloat), "x"); };
    try {
      submit();
      ADD_FAILURE() << "nothing was thrown";
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), (*rank).rank() == 0 ? ExitCode::kInternal : ExitCode::kConfig);
    }
    EXPECT_THROW(submit(), Error);
  });
  EXPECT_EQ(CountOf("enqueue 0 all_reduce"), 1) << "after a failure nothing is given to NCCL";
}

// What waits for the device then waits for ever: someone has to be told.
TEST(Nccl, AnAbortThatHangsIsToldOf) {
  fake_gpu::Script script;
  script.faults[{0, 0}] = {.hangs = true};
  script.abort_hangs = true;
  fake_gpu::Reset(script);
  std::atomic<bool> told{false};
  const auto store = std::make_shared<MemoryStore>();
  {
    Rank rank(0, 1, store,
              {.collective = milliseconds(200), .abort = milliseconds(300), .stuck = [&](const std::string& failure) {
                 EXPECT_NE(failure.find("NCCL did not end it within 0.3s"), std::string::npos) << failure;
                 told = true;
               }});
    (*rank).AllReduce(at::full({1}, 1.0, at::kFloat), "x");
    const auto begin = Clock::now();
    while (!told && Clock::now() - begin < seconds(10)) std::this_thread::sleep_for(milliseconds(10));
    EXPECT_TRUE(told);
    EXPECT_THROW((*rank).Wait(0), PeerError);
  }
  fake_gpu::ReleaseAborts();
}

TEST(Nccl, WhatHasNoSumIsRefused) {
  fake_gpu::Reset();
  InWorld(1, [](Rank& rank) {
    EXPECT_THROW((*rank).AllReduce(at::full({2}, 1.0, at::kBFloat16), "x"), std::logic_error);
    (*rank).AllGather(at::full({2}, 1.0, at::kBFloat16), at::empty({2}, at::kBFloat16), "of any type");
  });
}

}  // namespace
}  // namespace trainyard
