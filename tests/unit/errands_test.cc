#include "trainer/comm/errands.h"

#include <gtest/gtest.h>

#include <atomic>
#include <future>
#include <stdexcept>

namespace trainyard {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

TEST(Errands, ReturnsWithTheCallOrThrowsWhatItThrew) {
  Errands errands;
  int made = 0;
  EXPECT_TRUE(errands.Do([&] { ++made; }, seconds(60)));
  EXPECT_EQ(made, 1);
  EXPECT_THROW(errands.Do([] { throw std::logic_error("it"); }, seconds(60)), std::logic_error);
}

TEST(Errands, OneThatIsOverdueFailsTheOthersAtOnceUntilItReturns) {
  auto gate = std::make_shared<std::promise<void>>();
  auto made = std::make_shared<std::atomic<int>>(0);
  Errands errands;
  EXPECT_FALSE(errands.Do([gate] { gate->get_future().wait(); }, milliseconds(50)));
  EXPECT_FALSE(errands.Do([made] { ++*made; }, seconds(600)));
  gate->set_value();
  while (!errands.Do([made] { *made += 10; }, seconds(60))) std::this_thread::yield();
  EXPECT_EQ(*made, 10) << "a call that was refused is not made later";
}

// On a starved machine the thread comes to a call when nobody waits for it any more: it makes none, and is free.
TEST(Errands, OneThatIsGivenUpBeforeItBeganIsForgotten) {
  Errands errands;
  const auto end = std::chrono::steady_clock::now() + seconds(60);
  while (errands.Do([] {}, seconds(0))) ASSERT_LT(std::chrono::steady_clock::now(), end);
  while (!errands.Do([] {}, seconds(60))) ASSERT_LT(std::chrono::steady_clock::now(), end);
}

TEST(Errands, ACallThatNeverReturnsIsLeftBehind) {
  auto gate = std::make_shared<std::promise<void>>();
  auto over = std::make_shared<std::promise<void>>();
  {
    Errands errands;
    EXPECT_FALSE(errands.Do([gate, over] { gate->get_future().wait(), over->set_value(); }, milliseconds(50)));
  }
  gate->set_value();
  over->get_future().wait();
}

}  // namespace
}  // namespace trainyard
