#include "trainer/base/abandonable_thread.h"

#include <gtest/gtest.h>
#include <signal.h>

#include <chrono>
#include <future>
#include <memory>

namespace trainyard {
namespace {

using std::chrono::milliseconds, std::chrono::minutes;

TEST(AbandonableThread, WhatEndedWorkUsedIsDestroyedBeforeItCountsAsEnded) {
  const auto used = std::make_shared<int>(0);
  const AbandonableThread thread([used] { *used = 1; });
  EXPECT_TRUE(thread.WaitFor(minutes(1)));
  EXPECT_EQ(*used, 1);
  EXPECT_EQ(used.use_count(), 1);
  EXPECT_TRUE(thread.WaitUntil(std::chrono::steady_clock::now())) << "and it stays ended";
}

TEST(AbandonableThread, WorkThatDoesNotEndDelaysNobody) {
  const auto gate = std::make_shared<std::promise<void>>(), over = std::make_shared<std::promise<void>>();
  {
    const AbandonableThread thread([gate, over] { gate->get_future().wait(), over->set_value(); });
    EXPECT_FALSE(thread.WaitFor(milliseconds(20)));
    EXPECT_FALSE(thread.WaitUntil(std::chrono::steady_clock::now()));
  }
  gate->set_value();  // the destructor did not wait for this
  EXPECT_EQ(over->get_future().wait_for(minutes(1)), std::future_status::ready) << "its thread lives on";
}

TEST(AbandonableThread, SignalsAreTheOtherThreadsBusiness) {
  const auto blocked = std::make_shared<sigset_t>();
  const AbandonableThread thread([blocked] { pthread_sigmask(SIG_SETMASK, nullptr, blocked.get()); });
  ASSERT_TRUE(thread.WaitFor(minutes(1)));
  for (const int signal : {SIGTERM, SIGINT, SIGPIPE, SIGCHLD}) EXPECT_EQ(sigismember(blocked.get(), signal), 1);
}

TEST(Within, AThingThatDoesNotComeBackIsLeftToItself) {
  EXPECT_TRUE(Within(minutes(1), [] {}));
  const auto never = std::make_shared<std::promise<void>>();
  EXPECT_FALSE(Within(milliseconds(20), [never] { never->get_future().wait(); }));
  never->set_value();
}

}  // namespace
}  // namespace trainyard
