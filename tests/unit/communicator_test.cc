#include "trainer/comm/communicator.h"

#include <ATen/Parallel.h>
#include <ATen/TensorOperators.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/full.h>
#include <dlfcn.h>
#include <gtest/gtest.h>
#include <netdb.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <filesystem>
#include <map>
#include <new>
#include <stdexcept>
#include <thread>

#include "tests/unit/collectives_contract.h"
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

std::vector<std::unique_ptr<Communicator>> GlooWorldWithin(std::chrono::seconds deadline, int size) {
  KeepNoRecordsOfC10d();
  static std::vector<std::shared_ptr<C10dStore>> kept;  // the hosts; groups keep using them
  kept.push_back(std::make_shared<C10dStore>(
      C10dStoreOptions{.host = "127.0.0.1", .port = 0, .host_here = true, .listen_fd = {}}));
  const int port = kept.back()->port();
  std::vector<std::unique_ptr<Communicator>> world(static_cast<size_t>(size));
  std::vector<std::thread> threads;
  for (int rank = 0; rank < size; ++rank) {
    threads.emplace_back([&, rank] {
      const auto store = std::make_shared<C10dStore>(
          C10dStoreOptions{.host = "127.0.0.1", .port = port, .host_here = false, .listen_fd = {}});
      world[static_cast<size_t>(rank)] = MakeGlooCommunicator(
          store, {.rank = rank, .size = size, .interface = "127.0.0.1", .collective_timeout = deadline});
    });
  }
  for (std::thread& thread : threads) thread.join();
  return world;
}

std::vector<std::unique_ptr<Communicator>> GlooWorld(int size) {
  return GlooWorldWithin(std::chrono::seconds(600), size);
}

using MakeWorld = std::vector<std::unique_ptr<Communicator>> (*)(int);
class CommunicatorTest : public testing::TestWithParam<std::pair<MakeWorld, int>> {
 protected:
  void Run(const std::function<void(Communicator&)>& body) { InWorld(GetParam().first(GetParam().second), body); }
};

TEST_P(CommunicatorTest, SumsGathersAndBroadcasts) {
  Run([](Communicator& c) { contract::SumsGathersAndBroadcasts(c, [] {}); });
}

TEST_P(CommunicatorTest, CollectivesEndInTheirOrder) {
  Run([](Communicator& c) { contract::CollectivesEndInTheirOrder(c, [] {}); });
}

// The order of a sum is the ranks', whatever the element's place and the buffer's length: of chunks, of one exchange.
TEST_P(CommunicatorTest, SumsDoNotDependOnTheCut) {
  Run([](Communicator& c) {
    const int64_t count = c.size() == 2 ? 17'000'000 : 1'500'000;  // once more than is under way at a time
    at::Tensor whole = at::arange(count, at::kFloat) * 0.1f + 1e4f * static_cast<float>(c.rank() * c.rank());
    at::Tensor pieces = whole.clone();
    c.Wait(c.AllReduce(whole, "whole"));
    Communicator::Ticket last = 0;  // many on their way: a rank that is ahead sends what the others do not wait for yet
    for (int64_t begin = 0; begin < count;) {
      const int64_t n = std::min<int64_t>(count - begin, 1 + begin % (last % 2 ? 97 : 300'007));
      last = c.AllReduce(pieces.narrow(0, begin, n), "piece");
      begin += n;
    }
    c.Wait(last);
    EXPECT_TRUE(whole.equal(pieces));
  });
}

TEST_P(CommunicatorTest, AnySizeAndTypeIsSummedAndSharedOut) {
  Run([](Communicator& c) { contract::AnySizeAndTypeIsSummedAndSharedOut(c, [] {}); });
}

// A team of threads for sums would compete with that of the step.
TEST_P(CommunicatorTest, SumsAreMadeByOneThread) {
  const auto threads = [] {
    return std::distance(std::filesystem::directory_iterator("/proc/self/task"), std::filesystem::directory_iterator());
  };
  const int before = at::get_num_threads();
  at::set_num_threads(4);
  auto world = GetParam().first(GetParam().second);
  std::vector<at::Tensor> values;  // this thread's team is made with them
  for (size_t rank = 0; rank < world.size(); ++rank) values.push_back(at::full({4'000'000}, 1, at::kFloat));
  const auto with_communicators = threads();
  std::vector<Communicator::Ticket> tickets;
  for (size_t rank = 0; rank < world.size(); ++rank) tickets.push_back(world[rank]->AllReduce(values[rank], "large"));
  for (size_t rank = 0; rank < world.size(); ++rank) world[rank]->Wait(tickets[rank]);
  EXPECT_EQ(threads(), with_communicators);
  at::set_num_threads(before);
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
INSTANTIATE_TEST_SUITE_P(Gloo, CommunicatorTest,
                         testing::Values(std::pair{&GlooWorld, 2}, std::pair{&GlooWorld, 3}, std::pair{&GlooWorld, 5}));

// The sockets of this process that listen on 127.0.0.1 alone, which are Gloo's, and their addresses.
std::map<int, sockaddr_in> GlooDoors() {
  std::map<int, sockaddr_in> doors;
  for (const auto& entry : std::filesystem::directory_iterator("/proc/self/fd")) {
    const int fd = std::stoi(entry.path().filename());
    int listens = 0;
    socklen_t size = sizeof listens;
    if (getsockopt(fd, SOL_SOCKET, SO_ACCEPTCONN, &listens, &size) != 0 || !listens) continue;
    sockaddr_in where{};
    size = sizeof where;
    getsockname(fd, reinterpret_cast<sockaddr*>(&where), &size);
    if (where.sin_family == AF_INET && where.sin_addr.s_addr == htonl(INADDR_LOOPBACK)) doors[fd] = where;
  }
  return doors;
}

// Gloo would keep the descriptor of each connection for ever, and abort when there are no more.
TEST(Gloo, AGroupThatIsConnectedLetsNobodyElseIn) {
  const auto before = GlooDoors();
  auto first = GlooWorld(2), second = GlooWorld(3);  // The doors of an earlier group are no hindrance for a later one.
  auto doors = GlooDoors();
  for (const auto& [fd, where] : before) doors.erase(fd);
  EXPECT_EQ(doors.size(), 5U);
  for (const auto& [fd, where] : doors) {
    const int stranger = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK, 0);
    connect(stranger, reinterpret_cast<const sockaddr*>(&where), sizeof where);
    pollfd connected = {stranger, POLLOUT, 0};
    EXPECT_EQ(poll(&connected, 1, 100), 0) << "connected to " << ntohs(where.sin_port);
    close(stranger);
  }
  const auto counts = [](Communicator& c) {
    at::Tensor x = at::full({2}, 1.0, at::kFloat);
    c.Wait(c.AllReduce(x, "x"));
    EXPECT_EQ(x[1].item<float>(), static_cast<float>(c.size()));
  };
  InWorld(std::move(first), counts);
  InWorld(std::move(second), counts);
}

// Small and large: one exchange, and chunks.
TEST(Gloo, ARankThatDoesNotComeIsWaitedForUntilTheDeadline) {
  for (const int64_t n : {8, 1 << 20}) {
    auto world = GlooWorldWithin(std::chrono::seconds(1), 2);
    const auto begin = std::chrono::steady_clock::now();
    try {
      world[0]->Wait(world[0]->AllReduce(at::full({n}, 1.0, at::kFloat), "x"));
      ADD_FAILURE() << "summed what was never sent";
    } catch (const PeerError& error) {
      EXPECT_NE(std::string(error.what()).find("all_reduce (x): not answered within 1.0s"), std::string::npos)
          << error.what();
    }
    EXPECT_LT(std::chrono::steady_clock::now() - begin, std::chrono::seconds(5));
  }
}

// A collective that throws.
class FailingCommunicator : public Communicator {
 public:
  explicit FailingCommunicator(std::function<void()> fail) : Communicator(0, 1), fail_(std::move(fail)) {
    StartThread();
  }
  ~FailingCommunicator() override { StopThread(); }

 protected:
  void DoAllReduce(at::Tensor&) override { fail_(); }
  void DoReduceScatter(const at::Tensor&, at::Tensor&) override { fail_(); }
  void DoAllGather(const at::Tensor&, at::Tensor&) override { fail_(); }
  void DoBroadcast(at::Tensor&, int) override { fail_(); }

 private:
  const std::function<void()> fail_;
};

TEST(Communicator, WhatIsThisRanksOwnIsNotBlamedOnAPeer) {
  FailingCommunicator memory([] { throw std::bad_alloc(); });
  EXPECT_THROW(memory.Barrier("counts"), OutOfMemoryError);
  EXPECT_THROW(memory.Barrier("and ever after"), OutOfMemoryError);
  FailingCommunicator bug([] { throw std::logic_error("a bug"); });
  EXPECT_THROW(bug.Barrier("counts"), std::logic_error);
  FailingCommunicator peer([] { throw PeerError("it left"); });
  EXPECT_THROW(peer.Barrier("counts"), PeerError);
}

// A host that is frozen keeps its connections, and new ones come about.
TEST(C10dStore, AHostThatNeverAnswersIsNotWaitedForForEver) {
  const int listening = socket(AF_INET, SOCK_STREAM, 0);
  sockaddr_in where{};
  where.sin_family = AF_INET;
  where.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  ASSERT_EQ(bind(listening, reinterpret_cast<sockaddr*>(&where), sizeof where), 0);
  socklen_t size = sizeof where;
  getsockname(listening, reinterpret_cast<sockaddr*>(&where), &size);
  listen(listening, 8);
  const auto begin = std::chrono::steady_clock::now();
  EXPECT_THROW(C10dStore(C10dStoreOptions{.host = "127.0.0.1",
                                          .port = ntohs(where.sin_port),
                                          .listen_fd = {},
                                          .timeout = std::chrono::seconds(1),
                                          .stop = {}}),
               PeerError);
  EXPECT_LT(std::chrono::steady_clock::now() - begin, std::chrono::seconds(10));
  close(listening);
}

// Names are asked of a server that may never answer, by the one thread of LibTorch's store.
TEST(C10dStore, NobodyIsAskedForTheNameOfWhoConnects) {
  EXPECT_EQ(dlsym(RTLD_DEFAULT, "getnameinfo"), reinterpret_cast<void*>(&getnameinfo)) << "LibTorch calls another one";
  sockaddr_in v4{};
  v4.sin_family = AF_INET;
  v4.sin_port = htons(29500);
  v4.sin_addr.s_addr = htonl(0xC0000201);  // of a network that is for documentation (RFC 5737)
  char host[64], service[8];
  ASSERT_EQ(getnameinfo(reinterpret_cast<sockaddr*>(&v4), sizeof v4, host, sizeof host, service, sizeof service, 0), 0);
  EXPECT_STREQ(host, "192.0.2.1");
  EXPECT_STREQ(service, "29500");
  sockaddr_in6 v6{};
  v6.sin6_family = AF_INET6;
  v6.sin6_addr = in6addr_loopback;
  ASSERT_EQ(getnameinfo(reinterpret_cast<sockaddr*>(&v6), sizeof v6, host, sizeof host, nullptr, 0, 0), 0);
  EXPECT_STREQ(host, "::1");
  EXPECT_EQ(getnameinfo(reinterpret_cast<sockaddr*>(&v6), sizeof v6, host, 2, nullptr, 0, 0), EAI_OVERFLOW);
}

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
