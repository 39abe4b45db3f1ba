#include "trainer/comm/signs_of_life.h"

#include <gtest/gtest.h>

#include <atomic>
#include <condition_variable>
#include <mutex>
#include <thread>

#include "trainer/base/error.h"
#include "trainer/comm/pulse.h"

namespace trainyard {
namespace {

using std::chrono::seconds;

TEST(Silence, CountsFromTheLastChangeHoweverLongItTakesInTotal) {
  const Silence::Time start{};
  Silence silence(seconds(10), start);
  const auto at = [&](int second, int sign) { return silence.TooLong(std::to_string(sign), start + seconds(second)); };
  for (int second = 0; second <= 999; ++second) EXPECT_FALSE(at(second, second / 9)) << second;
  for (int second = 1000; second <= 1009; ++second) EXPECT_FALSE(at(second, 111)) << second;
  EXPECT_TRUE(at(1010, 111));
  EXPECT_FALSE(at(1011, 112));
}

TEST(Silence, OneThatNeverSaidAnythingIsSilentFromTheStart) {
  const Silence::Time start{};
  Silence silence(seconds(10), start);
  for (int second = 0; second <= 10; ++second) EXPECT_FALSE(silence.TooLong({}, start + seconds(second)));
  EXPECT_TRUE(silence.TooLong({}, start + seconds(11)));
}

// A machine that was suspended finds every sign as old as it slept. A store that answers slowly ends no wait, but for
// this.
TEST(Silence, TheTimeInWhichNobodyAskedCountsALittle) {
  const Silence::Time start{};
  Silence silence(seconds(10), start);
  for (int second = 0; second <= 8; ++second) EXPECT_FALSE(silence.TooLong("1", start + seconds(second)));
  EXPECT_FALSE(silence.TooLong("1", start + seconds(100)));
  EXPECT_TRUE(silence.TooLong("1", start + seconds(101)));
  Silence slow(seconds(10), start);
  for (int answer = 1; answer <= 5; ++answer) EXPECT_FALSE(slow.TooLong("1", start + seconds(60 * answer)));
  EXPECT_FALSE(slow.TooLong("1", start + seconds(60 * 6))) << "the first answer was the sign's change";
  EXPECT_TRUE(slow.TooLong("1", start + seconds(60 * 7)));
}

TEST(SignsOfLife, TheKeyTheSilenceAndTheStopEndTheWait) {
  auto store = std::make_shared<MemoryStore>();
  SignsOfLife none(store, 0, {}, {.silence = seconds(0)});
  EXPECT_THROW(none.Wait("key", 1, "rank 1"), PeerError);
  SignsOfLife stopped(store, 0, [] { return true; });
  EXPECT_THROW(stopped.Wait("key", 1, "rank 1"), StoppedError);
  EXPECT_THROW(stopped.Beat(), StoppedError);
  SignsOfLife waiting(store, 0, {});
  std::jthread other([&] { store->Set("key", "value"); });
  EXPECT_EQ(waiting.Wait("key", 1, "rank 1"), "value");
}

// A rank that waits for a living one is alive itself to those who wait for it.
TEST(SignsOfLife, LifeIsPassedOn) {
  auto store = std::make_shared<MemoryStore>();
  SignsOfLife zero(store, 0, {}), one(store, 1, {});
  std::jthread waits([&] { zero.Wait("key", 1, "rank 1"); });
  one.Beat();
  while (!store->Get("alive/0")) std::this_thread::yield();
  store->Set("key", "");
}

TEST(SignsOfLife, WhoGetsOnIsSaidToBeAlive) {
  auto store = std::make_shared<MemoryStore>();
  int zero_alive = 0;
  SignsOfLife zero(store, 0, {}, {.alive = [&] { ++zero_alive; }}), one(store, 1, {});
  zero.Beat();
  zero.Beat();
  EXPECT_EQ(zero_alive, 1) << "once a second";
  std::this_thread::sleep_for(std::chrono::milliseconds(1100));
  one.Beat();
  std::thread later([&] {
    std::this_thread::sleep_for(std::chrono::milliseconds(200));
    store->Set("key", "value");
  });
  EXPECT_EQ(zero.Wait("key", 1, "it"), "value");
  later.join();
  EXPECT_EQ(zero_alive, 2) << "who waits is, as long as that one is";
}

TEST(SignsOfLife, WhoeverGivesNoNewSignIsSilent) {
  auto store = std::make_shared<MemoryStore>();
  SignsOfLife zero(store, 0, {}), one(store, 1, {});
  one.Beat();  // and never again
  EXPECT_EQ(zero.Silent(3, std::chrono::milliseconds(300)), (std::vector<int>{1, 2})) << "an old sign is none";
}

// A process that stands still is not waited for as long as one that works on slow storage, and says nothing of it.
TEST(SignsOfLife, WhoIsFrozenEndsTheWaitBeforeTheSilence) {
  auto store = std::make_shared<MemoryStore>();
  std::atomic<int> beats{0};
  const auto wait = [&](std::function<ProcessSign(int)> pulse) -> std::string {
    SignsOfLife zero(store, 0, {}, {.silence = seconds(3), .pulse = std::move(pulse), .frozen = seconds(1)});
    try {
      return zero.Wait("key", 1, "it");
    } catch (const PeerError& error) {
      return error.what();
    }
  };
  EXPECT_EQ(wait([](int) { return ProcessSign{"7"}; }),
            "rank 0 waited for it, and rank 1 gives no sign of life: frozen, or its node is lost");
  EXPECT_EQ(wait([&](int) { return ProcessSign{std::to_string(++beats)}; }),
            "rank 0 waited for it, and heard nothing of rank 1 for 3.0s");
  EXPECT_EQ(wait([](int) { return ProcessSign{}; }), "rank 0 waited for it, and heard nothing of rank 1 for 3.0s")
      << "unknown";
}

// Who has said goodbye is not waited for as long as who may be frozen, only until it is sure that nothing was set
// before.
TEST(SignsOfLife, WhoHasLeftEndsTheWait) {
  auto store = std::make_shared<MemoryStore>();
  bool sets_it = true;
  const auto gone = [&](int) {
    if (sets_it) store->Set("key", "its value");
    return ProcessSign{"7", true};
  };
  SignsOfLife zero(store, 0, {}, {.silence = std::chrono::minutes(5), .pulse = gone});
  EXPECT_EQ(zero.Wait("key", 1, "it"), "its value") << "set before it left, seen after";
  sets_it = false;
  store->Delete("key");
  const auto begin = std::chrono::steady_clock::now();
  EXPECT_THROW(
      {
        try {
          zero.Wait("key", 1, "it");
        } catch (const PeerError& error) {
          EXPECT_STREQ(error.what(), "rank 0 waited for it, and rank 1 has ended since");
          throw;
        }
      },
      PeerError);
  EXPECT_LT(std::chrono::steady_clock::now() - begin, seconds(30));
}

// A store that counts the questions for a key, and whose host may be frozen: then no question is answered in time.
class TroubledStore : public PrefixStore {
 public:
  explicit TroubledStore(std::shared_ptr<Store> store = std::make_shared<MemoryStore>())
      : PrefixStore(std::move(store), "") {}
  std::optional<std::string> Get(const std::string& key) override {
    if (key == "key") ++looks;
    Pass();
    return PrefixStore::Get(key);
  }
  int64_t Add(const std::string& key, int64_t amount) override {
    Pass();
    const int64_t sum = PrefixStore::Add(key, amount);
    if (freezes_after_adding) {
      Freeze(true);
      std::this_thread::sleep_for(std::chrono::milliseconds(500));
    }
    return sum;
  }
  void Freeze(bool frozen) {
    const std::lock_guard lock(mutex_);
    frozen_ = frozen;
    changed_.notify_all();
  }
  std::atomic<int> looks{0};
  std::atomic<bool> freezes_after_adding{false};  // with its answer still on its way

 private:
  void Pass() {
    std::unique_lock lock(mutex_);
    if (!changed_.wait_for(lock, kAnswer, [&] { return !frozen_; })) throw PeerError("the store did not answer");
  }
  // Longer than Pulse waits for a beat and for its end, so that neither is mended by it.
  static constexpr seconds kAnswer{6};
  std::mutex mutex_;
  std::condition_variable changed_;
  bool frozen_ = false;
};

TEST(SignsOfLife, ALongWaitLooksSeldom) {
  auto store = std::make_shared<TroubledStore>();
  SignsOfLife waiting(store, 0, {}, {.silence = seconds(2)});
  EXPECT_THROW(waiting.Wait("key", 1, "rank 1"), PeerError);
  EXPECT_LT(store->looks, 80) << "100 at one in 20 ms";
}

std::string Said(const Pulse& pulse) {
  const auto quiet = pulse.Silence();
  return quiet ? quiet->sentence : "";
}

// Also one that answers a last beat as it freezes, so that the next question is the first to stay unanswered.
void AFrozenStoreHoldsNobodyUp(bool answers_a_last_beat) {
  auto store = std::make_shared<TroubledStore>();
  store->freezes_after_adding = answers_a_last_beat;
  const auto begin = std::chrono::steady_clock::now();
  {
    const Pulse zero(store, 0, 2);
    if (!answers_a_last_beat) store->Freeze(true);
    EXPECT_NE(Said(zero).find("the store does not answer"), std::string::npos);
  }
  EXPECT_LT(std::chrono::steady_clock::now() - begin, seconds(30));
  store->Freeze(false);
}

TEST(Pulse, AStoreThatIsFrozenHoldsNobodyUp) { AFrozenStoreHoldsNobodyUp(false); }
TEST(Pulse, AStoreThatFreezesBehindAnAnswerHoldsNobodyUp) { AFrozenStoreHoldsNobodyUp(true); }

// A rank whose step hangs still has a pulse; one that is frozen or lost has none; one that left has said so.
TEST(Pulse, NamesTheSilent) {
  auto store = std::make_shared<MemoryStore>();
  auto troubled = std::make_shared<TroubledStore>(store);
  const Pulse zero(store, 0, 3), one(troubled, 1, 3);
  EXPECT_EQ(Said(zero).find("rank 2 gives no sign of life"), 0u);
  auto two = std::make_unique<Pulse>(store, 2, 3);
  EXPECT_EQ(Said(zero), "");
  const auto of = Pulse::Of(store);
  EXPECT_TRUE(of(1).beat && of(2).beat && !of(2).left);
  two.reset();
  EXPECT_EQ(Said(zero), "rank 2 has ended since");
  EXPECT_TRUE(zero.Silence()->left);
  EXPECT_TRUE(of(2).left);
  troubled->Freeze(true);  // what rank 1 says, from now on
  EXPECT_EQ(Said(zero).find("rank 1 gives no sign of life"), 0u);
  EXPECT_FALSE(zero.Silence()->left);
  EXPECT_TRUE(of(1).beat && !of(1).left) << "its last one";
  troubled->Freeze(false);
}

}  // namespace
}  // namespace trainyard
