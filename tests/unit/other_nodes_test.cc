#include "trainer/launch/other_nodes.h"

#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <thread>

#include "trainer/base/error.h"

namespace trainyard {
namespace {

using Sign = OtherNodes::Sign;

// A store that may be gone.
struct Lost : MemoryStore {
  std::atomic<bool> gone{false};
  int64_t Add(const std::string& key, int64_t amount) override {
    if (gone) throw PeerError("gone");
    return MemoryStore::Add(key, amount);
  }
};

Sign SignWithin(const OtherNodes& others, Sign wanted) {
  for (int i = 0; i < 1000 && others.Now().first != wanted; ++i)
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
  return others.Now().first;
}

TEST(OtherNodes, AreThereUntilOneHasSignedOff) {
  const auto store = std::make_shared<Lost>();
  OtherNodes others([&] { return store; });
  EXPECT_EQ(others.Now().first, Sign::kThere);
  store->Add(kLaunchersDone, 1);
  EXPECT_EQ(SignWithin(others, Sign::kEnded), Sign::kEnded);
}

TEST(OtherNodes, AreUnreachableOnlyOnceTheyWereReached) {
  const auto store = std::make_shared<Lost>();
  std::atomic<int> asked = 0;
  store->gone = true;
  OtherNodes others([&] {
    ++asked;
    return store;
  });
  while (asked < 2) std::this_thread::sleep_for(std::chrono::milliseconds(10));
  EXPECT_EQ(others.Now().first, Sign::kThere) << "node 0 may start later";
  store->gone = false;
  while (asked < 3) std::this_thread::sleep_for(std::chrono::milliseconds(10));
  std::this_thread::sleep_for(std::chrono::milliseconds(100));  // the answer behind the connection
  store->gone = true;
  EXPECT_EQ(SignWithin(others, Sign::kUnreachable), Sign::kUnreachable);
}

}  // namespace
}  // namespace trainyard
