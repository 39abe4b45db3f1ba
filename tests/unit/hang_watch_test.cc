#include "trainer/comm/hang_watch.h"

#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <thread>

namespace trainyard {
namespace {

using Clock = std::chrono::steady_clock;

TEST(HangWatch, AllHearOneVerdictAndTheCulpritIsCalled) {
  const auto store = std::make_shared<MemoryStore>();
  std::atomic<int> named_rank{-1};
  std::string heard;
  std::vector<std::unique_ptr<HangWatch>> watches;
  for (int rank = 0; rank < 3; ++rank) {
    watches.push_back(std::make_unique<HangWatch>(store, rank, 3, [&, rank](const std::string& verdict) {
      heard = verdict;
      named_rank = rank;
    }));
  }
  for (const size_t rank : {size_t{0}, size_t{1}})
    watches[rank]->recorder().Enter("control", "all_reduce", "consensus", 48);
  watches[2]->recorder().Phase("data");
  std::vector<std::string> said(2);
  std::vector<std::thread> threads;
  for (size_t rank = 0; rank < 2; ++rank) threads.emplace_back([&, rank] { said[rank] = watches[rank]->Explain(); });
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(said[0], said[1]);
  EXPECT_NE(said[0].find("rank 2"), std::string::npos) << said[0];
  EXPECT_NE(said[0].find(" never entered all_reduce #1 (control, consensus, 48 B); last seen in data"),
            std::string::npos)
      << said[0];
  const auto begin = Clock::now();
  while (named_rank < 0 && Clock::now() - begin < std::chrono::seconds(10))
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
  EXPECT_EQ(named_rank, 2);
  EXPECT_EQ(heard, said[0]);
}

// Who does not answer at all is named by its pulse (signs_of_life_test.cc).
TEST(HangWatch, ARankThatDoesNotAnswerLeavesNoVerdict) {
  const auto store = std::make_shared<MemoryStore>();
  HangWatch watch(store, 0, 2, {});
  watch.recorder().Enter("control", "all_reduce", "consensus", 48);
  const auto begin = Clock::now();
  EXPECT_EQ(watch.Explain(), "");
  EXPECT_LT(Clock::now() - begin, std::chrono::seconds(7));
  // Of whom it is known that it has left, no answer is waited for.
  const auto again = Clock::now();
  HangWatch other(std::make_shared<MemoryStore>(), 0, 2, {});
  EXPECT_EQ(other.Explain(std::chrono::milliseconds(100)), "");
  EXPECT_LT(Clock::now() - again, HangWatch::kAnswer);
}

}  // namespace
}  // namespace trainyard
