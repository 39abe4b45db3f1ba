// What stands between the reconciler and the REST client: repeating, the limit, the fence.
#include <gtest/gtest.h>

#include <thread>

#include "operator/kube/limited_client.h"
#include "operator/kube/retrying_client.h"
#include "tests/operator/scripted_client.h"

namespace trainyard::kube {
namespace {

Status Asked(Code code, double seconds) { return Status(code, "later").set_retry_after_seconds(seconds); }

class RetryingTest : public testing::Test {
 protected:
  Status List() {
    return client_.List(kPods, "", {}, [](const Json&) {}).status();
  }
  TurnedClock clock_;
  StopFlag stop_;
  ScriptedClient inner_{clock_};
  RetryingClient client_{inner_, stop_, 1};
};

TEST_F(RetryingTest, RepeatsWhatTheServerAskedToComeAgain) {
  inner_.lists = {Asked(Code::kThrottled, 0.1), Asked(Code::kUnavailable, 0.1), ListAt(1)};
  EXPECT_TRUE(List().ok());
  EXPECT_EQ(inner_.list_versions.size(), 3u);
}

TEST_F(RetryingTest, RepeatsNothingElse) {
  for (const Code code : {Code::kUnavailable, Code::kConflict, Code::kForbidden, Code::kDeadline, Code::kInternal}) {
    inner_.list_versions.clear();
    inner_.lists = {Status(code, "no"), ListAt(1)};
    EXPECT_TRUE(List().Is(code));
    EXPECT_EQ(inner_.list_versions.size(), 1u) << CodeName(code);
  }
}

// Whoever wrote it chose the code and the wait, and one namespace's pods would keep the workers of all jobs.
TEST_F(RetryingTest, RepeatsNothingForAWebhook) {
  for (const Code code : {Code::kThrottled, Code::kUnavailable}) {
    inner_.list_versions.clear();
    inner_.lists = {
        Status(code, "admission webhook \"a.example.com\" denied the request: later").set_retry_after_seconds(30),
        ListAt(1)};
    EXPECT_TRUE(List().Is(code));
    EXPECT_EQ(inner_.list_versions.size(), 1u) << CodeName(code);
  }
}

TEST_F(RetryingTest, GivesUpAfterTenTimes) {
  inner_.lists = std::deque<Result<Json>>(20, Asked(Code::kThrottled, 0.001));
  EXPECT_TRUE(List().Is(Code::kThrottled));
  EXPECT_EQ(inner_.list_versions.size(), 11u);
}

TEST_F(RetryingTest, AWaitEndsWithTheStop) {
  inner_.lists = {Asked(Code::kThrottled, 1000), ListAt(1)};
  std::thread stopper([&] {
    while (inner_.calls == 0) std::this_thread::yield();
    stop_.Set();
  });
  const Instant start = SteadyNow();
  EXPECT_TRUE(List().Is(Code::kStopped));
  EXPECT_LT(SecondsBetween(start, SteadyNow()), 20) << "of thirty";
  stopper.join();
}

TEST(TokenBucket, GivesItsBurstAndThenItsRate) {
  TurnedClock clock;
  TokenBucket bucket(10, 3, clock);
  for (int i = 0; i < 3; ++i) EXPECT_EQ(bucket.Take(), 0);
  EXPECT_NEAR(bucket.Take(), 0.1, 1e-9);
  EXPECT_NEAR(bucket.Take(), 0.2, 1e-9) << "whoever asks later waits longer";
  clock.Pass(0.2);
  EXPECT_NEAR(bucket.Take(), 0.1, 1e-9);
  clock.Pass(1000);
  for (int i = 0; i < 3; ++i) EXPECT_EQ(bucket.Take(), 0) << "no more than the burst is kept";
  EXPECT_GT(bucket.Take(), 0);
  EXPECT_EQ(bucket.counters().taken, 10);
  EXPECT_EQ(bucket.counters().waited, 4);
  EXPECT_NEAR(bucket.counters().seconds, 0.5, 1e-9);
}

TEST(LimitedClient, EveryCallTakesATokenAndAWaitEndsWithTheStop) {
  TurnedClock clock;
  StopFlag stop;
  ScriptedClient inner(clock);
  TokenBucket bucket(0.001, 6, clock);
  LimitedClient client(inner, bucket, stop);
  EXPECT_TRUE(client.Get(kPods, "", "a").ok());
  EXPECT_TRUE(client.List(kPods, "", {}, [](const Json&) {}).ok());
  EXPECT_TRUE(client.Create(kPods, "", {}, {}).ok());
  EXPECT_TRUE(client.MergePatch(kPods, "", "a", "", {}, {}).ok());
  EXPECT_TRUE(client.Delete(kPods, "", "a", {}).ok());
  inner.watches.push_back({});
  EXPECT_TRUE(client
                  .Watch(
                      kPods, "", {}, [](const WatchEvent&) { return true; }, stop)
                  .ok());
  EXPECT_EQ(bucket.counters().waited, 0);
  std::thread stopper([&] {
    while (bucket.counters().waited == 0) std::this_thread::yield();
    stop.Set();
  });
  EXPECT_TRUE(client.Get(kPods, "", "a").status().Is(Code::kStopped)) << "and not after a thousand seconds";
  stopper.join();
}

}  // namespace
}  // namespace trainyard::kube
