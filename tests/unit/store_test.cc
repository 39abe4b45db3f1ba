#include "trainer/comm/store.h"

#include <gtest/gtest.h>

#include <thread>

#include "trainer/base/error.h"

namespace trainyard {
namespace {

using std::chrono::milliseconds;

TEST(Store, WaitReturnsWhatAnotherThreadSets) {
  MemoryStore store;
  std::thread setter([&] {
    std::this_thread::sleep_for(milliseconds(20));
    store.Set("key", "value");
  });
  EXPECT_EQ(store.Wait("key", milliseconds(5000), "the value"), "value");
  setter.join();
}

TEST(Store, WaitSaysWhatItWaitedFor) {
  MemoryStore store;
  try {
    store.Wait("key", milliseconds(30), "rank 3 to join");
    FAIL();
  } catch (const PeerError& error) {
    EXPECT_NE(std::string(error.what()).find("rank 3 to join"), std::string::npos);
  }
}

TEST(Store, WaitObeysAStop) {
  MemoryStore store;
  EXPECT_THROW(store.Wait("key", milliseconds(5000), "anything", [] { return true; }), StoppedError);
}

TEST(Store, AddCounts) {
  MemoryStore store;
  EXPECT_EQ(store.Add("n", 2), 2);
  EXPECT_EQ(store.Add("n", 3), 5);
}

TEST(PrefixStore, KeepsKeysApart) {
  auto store = std::make_shared<MemoryStore>();
  PrefixStore a(store, "a/"), b(store, "b/");
  a.Set("key", "1");
  EXPECT_FALSE(b.Get("key"));
  EXPECT_EQ(store->Get("a/key"), "1");
}

}  // namespace
}  // namespace trainyard
