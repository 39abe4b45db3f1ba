// The queue of keys, and the controller that takes them out.
#include "operator/kube/work_queue.h"

#include <gtest/gtest.h>

#include <atomic>
#include <set>
#include <stdexcept>
#include <thread>
#include <vector>

#include "operator/kube/controller.h"

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

// One tenant's hundred large jobs, each a worker's for seconds, and again, would be before everybody else's.
TEST_F(WorkQueueTest, NamespacesTakeTurns) {
  for (int i = 0; i < 100; ++i) queue_.Add("large/" + std::to_string(i));
  EXPECT_EQ(queue_.TryGet(), "large/0");
  for (const char* key : {"a/1", "a/2", "b/1"}) queue_.Add(key);
  for (const char* key : {"large/1", "a/1", "b/1", "large/2", "a/2", "large/3", "large/4"})
    EXPECT_EQ(queue_.TryGet(), key);
  queue_.Add("large/0");  // it is being worked on, and comes behind the others of its own
  queue_.Done("large/0");
  for (int i = 5; i < 100; ++i) EXPECT_EQ(queue_.TryGet(), "large/" + std::to_string(i));
  EXPECT_EQ(queue_.TryGet(), "large/0");
  EXPECT_EQ(queue_.TryGet(), std::nullopt);
}

// So it is after a start, and when another replica takes over.
TEST_F(WorkQueueTest, NamespacesTakeTurnsAlsoInWhatWasListed) {
  for (int i = 0; i < 100; ++i) queue_.AddBehind("a/" + std::to_string(i));
  queue_.AddBehind("z/1");
  for (const char* key : {"a/0", "z/1", "a/1"}) EXPECT_EQ(queue_.TryGet(), key);
}

TEST_F(WorkQueueTest, WhatHappensGoesBeforeWhatWasListed) {
  for (const char* key : {"a", "b", "c"}) queue_.AddBehind(key);
  queue_.Add("d");
  queue_.Add("b");
  queue_.AddBehind("d");
  EXPECT_EQ(queue_.depth(), 4u);
  for (const char* key : {"d", "b", "a", "c"}) EXPECT_EQ(queue_.TryGet(), key);
  EXPECT_EQ(queue_.TryGet(), std::nullopt);
}

TEST_F(WorkQueueTest, WhatIsDueComesForward) {
  for (const char* key : {"a", "b", "c"}) queue_.AddBehind(key);
  queue_.AddAfter("c", 5);
  EXPECT_EQ(queue_.TryGet(), "a");
  clock_.now = After(clock_.now, 6);
  EXPECT_EQ(queue_.TryGet(), "c");
  EXPECT_EQ(queue_.TryGet(), "b");
}

TEST_F(WorkQueueTest, WhatIsDueComesForwardAlsoIfItWasListedLater) {
  queue_.AddAfter("c", 5);
  for (const char* key : {"a", "b", "c"}) queue_.AddBehind(key);
  EXPECT_EQ(queue_.TryGet(), "a");
  clock_.now = After(clock_.now, 6);
  EXPECT_EQ(queue_.TryGet(), "c") << "a resync of ten thousand jobs delays no deadline";
  EXPECT_EQ(queue_.TryGet(), "b");
  EXPECT_EQ(queue_.TryGet(), std::nullopt);
}

TEST_F(WorkQueueTest, WhatWasListedWaitsForTenAtMost) {
  queue_.AddBehind("listed");
  for (int i = 0; i < 20; ++i) queue_.Add("live" + std::to_string(i));
  int before = 0;
  while (queue_.TryGet() != "listed") ++before;
  EXPECT_EQ(before, 10);
}

TEST_F(WorkQueueTest, WhatIsListedAfterAQuietTimeGoesBeforeNobody) {
  for (int i = 0; i < 15; ++i) {
    queue_.Add("live");
    EXPECT_EQ(queue_.TryGet(), "live");
    queue_.Done("live");
  }
  queue_.AddBehind("listed");
  queue_.Add("a");
  EXPECT_EQ(queue_.TryGet(), "a");
  EXPECT_EQ(queue_.TryGet(), "listed");
}

TEST_F(WorkQueueTest, BehindIsAsStingyAsTheRest) {
  queue_.AddBehind("a");
  EXPECT_EQ(queue_.TryGet(), "a");
  queue_.AddBehind("a");
  EXPECT_EQ(queue_.TryGet(), std::nullopt) << "one key is worked on by one worker";
  EXPECT_EQ(queue_.depth(), 0u);
  queue_.AddBehind("b");
  queue_.Add("a");  // comes forward while it is worked on
  queue_.Done("a");
  EXPECT_EQ(queue_.TryGet(), "a");
  queue_.Done("a");
  queue_.AddBehind("a");
  EXPECT_EQ(queue_.TryGet(), "b");
  EXPECT_EQ(queue_.TryGet(), "a");
  EXPECT_EQ(queue_.TryGet(), std::nullopt);
  EXPECT_EQ(queue_.WaitingSince(), std::nullopt);
}

TEST_F(WorkQueueTest, TellsSinceWhenWhatIsBehindWaits) {
  queue_.AddBehind("a");
  const Instant since = clock_.Steady();
  clock_.now = After(clock_.now, 5);
  EXPECT_EQ(queue_.WaitingSince(), since);
  queue_.AddBehind("b");
  queue_.Add("a");
  EXPECT_EQ(queue_.WaitingSince(), since) << "it has waited so long";
  EXPECT_EQ(queue_.TryGet(), "a");
  EXPECT_EQ(queue_.WaitingSince(), clock_.Steady());
}

TEST_F(WorkQueueTest, TellsOfTheKeyThatHasWaitedLongest) {
  queue_.AddBehind("listed");
  queue_.AddBehind("again");
  const Instant since = clock_.Steady();
  clock_.now = After(clock_.now, 300);
  queue_.Add("live");
  EXPECT_EQ(queue_.WaitingSince(), since) << "keys that come before it hide it not";
  queue_.Add("listed");
  EXPECT_EQ(queue_.TryGet(), "live");
  EXPECT_EQ(queue_.TryGet(), "listed");
  queue_.Add("listed");
  EXPECT_EQ(queue_.WaitingSince(), since);
  EXPECT_EQ(queue_.TryGet(), "again");
  EXPECT_EQ(queue_.WaitingSince(), std::nullopt) << "it waits for no worker, since one has it";
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

TEST_F(WorkQueueTest, TellsHowLongKeysWait) {
  EXPECT_EQ(queue_.WaitingSince(), std::nullopt);
  const auto begin = clock_.Steady();
  queue_.Add("a");
  queue_.AddAfter("b", 10);
  clock_.now = After(clock_.now, 20);
  queue_.Add("a");
  EXPECT_EQ(queue_.WaitingSince(), begin) << "a second time it waits no shorter";
  EXPECT_EQ(queue_.TryGet(), "a");
  EXPECT_EQ(queue_.waits().sum, 20);
  EXPECT_EQ(queue_.WaitingSince(), After(begin, 10)) << "since it was due";
  EXPECT_EQ(queue_.TryGet(), "b");
  EXPECT_EQ(queue_.waits().sum, 30);
  EXPECT_EQ(queue_.waits().count(), 2);
  queue_.Add("a");
  clock_.now = After(clock_.now, 0.5);
  queue_.Done("a");
  EXPECT_EQ(queue_.TryGet(), "a");
  EXPECT_EQ(queue_.waits().sum, 30.5) << "a key that was worked on has waited as well";
}

TEST_F(WorkQueueTest, ShutDownWakesWorkers) {
  std::thread worker([&] { EXPECT_EQ(queue_.Get(), std::nullopt); });
  queue_.ShutDown();
  worker.join();
  queue_.Add("a");
  EXPECT_EQ(queue_.TryGet(), std::nullopt);
}

// What is looked at by whoever wakes.
class CountedClock : public SystemClock {
 public:
  Instant Steady() const override {
    ++looks;
    return SystemClock::Steady();
  }
  mutable std::atomic<int> looks = 0;
};

// Takes `expected` keys out with so many workers, and shuts down behind the last one.
std::multiset<std::string> Drain(WorkQueue& queue, size_t workers, size_t expected) {
  Mutex mutex;
  std::multiset<std::string> taken;
  std::vector<std::thread> threads;
  for (size_t i = 0; i < workers; ++i) {
    threads.emplace_back([&] {
      while (const auto key = queue.Get()) {
        queue.Done(*key);
        const MutexLock lock(mutex);
        taken.insert(*key);
        if (taken.size() == expected) queue.ShutDown();
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  return taken;
}

TEST(WorkQueue, ADelayedKeyWakesOneWorkerAndTheNextTimekeeper) {
  constexpr int kKeys = 20, kWorkers = 8;
  const CountedClock clock;
  WorkQueue queue(clock);
  for (int i = 0; i < kKeys; ++i) queue.AddAfter(std::to_string(i), 0.1 + 0.02 * i);
  EXPECT_EQ(Drain(queue, kWorkers, kKeys).size(), size_t{kKeys});
  // A key is looked for when it is added, by who takes it before, behind, and when it comes again, and by who keeps the
  // time then: 134 in all. If each worker woke for each key, it would be 388.
  EXPECT_LE(clock.looks, kKeys * 7 + kWorkers * 2);
}

// No wake is lost: a key that waits has a worker that knows, whoever else adds, takes, or comes back meanwhile.
TEST(WorkQueue, NoKeyIsForgottenByWorkersThatWait) {
  constexpr int kRounds = 300;
  const SystemClock clock;
  for (const size_t workers : {1, 2, 5}) {
    WorkQueue queue(clock);
    std::vector<std::thread> adders;
    for (int adder = 0; adder < 3; ++adder) {
      adders.emplace_back([&queue, adder] {
        for (int i = 0; i < kRounds; ++i) {
          const std::string key = std::to_string(adder) + "/" + std::to_string(i);
          if (adder == 0) queue.Add(key);
          if (adder == 1) queue.AddBehind(key);
          if (adder == 2) queue.AddAfter(key, 0.0005 * (i % 7));
          if (i % 10 == 0) std::this_thread::sleep_for(std::chrono::milliseconds(1));
        }
      });
    }
    const std::multiset<std::string> taken = Drain(queue, workers, size_t{3} * kRounds);
    for (std::thread& adder : adders) adder.join();
    EXPECT_EQ(std::set<std::string>(taken.begin(), taken.end()).size(), size_t{3} * kRounds) << workers << " workers";
  }
}

TEST(Controller, ReconcilesAreCountedByTheirOutcome) {
  const SystemClock clock;
  WorkQueue queue(clock);
  const Logger log(-1, Logger::Form::kJson, LogLevel::kError);
  Controller controller(
      queue,
      [](const std::string& key) -> ReconcileResult {
        if (key == "thrown") throw std::runtime_error("a defect");
        if (key == "conflict") return {Status(Code::kConflict, "someone wrote"), {}};
        return {key == "ok" ? Status::Ok() : Status(Code::kForbidden, "no"), {}};
      },
      log);
  for (const char* key : {"ok", "conflict", "error", "thrown"}) queue.Add(key);
  controller.Start(2);
  const auto count = [&](Outcome outcome) { return controller.seconds(outcome).count(); };
  const Instant start = SteadyNow();
  while (count(Outcome::kError) < 4 && SecondsBetween(start, SteadyNow()) < 60) std::this_thread::yield();
  controller.Stop();
  EXPECT_EQ(count(Outcome::kOk), 1);
  EXPECT_GE(count(Outcome::kConflict), 1) << "it comes again";
  EXPECT_GE(count(Outcome::kError), 4) << "they come again, and cost the others nothing";
  EXPECT_GT(queue.retries(), 3);
}

}  // namespace
}  // namespace trainyard::kube
