#include "operator/kube/work_queue.h"

#include <gtest/gtest.h>

#include <thread>

namespace trainyard::kube {
namespace {

class FakeClock : public Clock {
 public:
  Time Now() const override { return now; }
  Time now{};
};

class WorkQueueTest : public testing::Test {
 protected:
  FakeClock clock_;
  WorkQueue queue_{clock_};
};

TEST_F(WorkQueueTest, Fair) {
  for (const char* key : {"a", "b", "c"}) queue_.Add(key);
  EXPECT_EQ(queue_.TryGet(), "a");
  EXPECT_EQ(queue_.TryGet(), "b");
  EXPECT_EQ(queue_.TryGet(), "c");
  EXPECT_EQ(queue_.TryGet(), std::nullopt);
}

TEST_F(WorkQueueTest, StingyWhileWaiting) {
  queue_.Add("a");
  queue_.Add("a");
  EXPECT_EQ(queue_.TryGet(), "a");
  queue_.Done("a");
  EXPECT_EQ(queue_.TryGet(), std::nullopt);
}

TEST_F(WorkQueueTest, AddWhileProcessing) {
  queue_.Add("a");
  EXPECT_EQ(queue_.TryGet(), "a");
  queue_.Add("a");
  EXPECT_EQ(queue_.TryGet(), std::nullopt) << "one key is worked on by one worker";
  queue_.Done("a");
  EXPECT_EQ(queue_.TryGet(), "a");
}

TEST_F(WorkQueueTest, DelayedTheEarliestCounts) {
  queue_.AddAfter("a", 10);
  queue_.AddAfter("a", 5);
  queue_.AddAfter("a", 20);
  clock_.now = After(clock_.now, 4.9);
  EXPECT_EQ(queue_.TryGet(), std::nullopt);
  clock_.now = After(clock_.now, 0.2);
  EXPECT_EQ(queue_.TryGet(), "a");
  queue_.Done("a");
  clock_.now = After(clock_.now, 100);
  EXPECT_EQ(queue_.TryGet(), std::nullopt);
}

TEST_F(WorkQueueTest, BacksOffAndForgets) {
  double expected = 0.005;
  for (int i = 0; i < 30; ++i) {
    queue_.AddFailed("a");
    ASSERT_TRUE(queue_.NextDue());
    EXPECT_NEAR(SecondsBetween(clock_.Steady(), *queue_.NextDue()), std::min(expected, 1000.0), 1e-5);
    clock_.now = Time(queue_.NextDue()->time_since_epoch());
    EXPECT_EQ(queue_.TryGet(), "a");
    queue_.Done("a");
    expected *= 2;
  }
  queue_.Forget("a");
  queue_.AddFailed("a");
  EXPECT_NEAR(SecondsBetween(clock_.Steady(), *queue_.NextDue()), 0.005, 1e-5);
}

TEST_F(WorkQueueTest, AFailureWhileDirtyComesAtOnce) {
  queue_.Add("a");
  EXPECT_EQ(queue_.TryGet(), "a");
  queue_.Add("a");
  queue_.AddFailed("a");
  queue_.Done("a");
  EXPECT_EQ(queue_.TryGet(), "a");
}

TEST_F(WorkQueueTest, ShutDownWakesWorkers) {
  std::thread worker([&] { EXPECT_EQ(queue_.Get(), std::nullopt); });
  queue_.ShutDown();
  worker.join();
  queue_.Add("a");
  EXPECT_EQ(queue_.TryGet(), std::nullopt);
}

}  // namespace
}  // namespace trainyard::kube
