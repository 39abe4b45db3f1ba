#include "trainer/comm/pulse.h"

#include "trainer/base/error.h"
#include "trainer/base/text.h"

namespace trainyard {
namespace {

// A living rank beats once a second; a crowded machine may delay it.
constexpr std::chrono::seconds kListen{4};

}  // namespace

Pulse::Pulse(std::shared_ptr<Store> store, int rank, int size)
    : signs_(std::make_shared<PrefixStore>(std::move(store), "pulse/"), rank, {}), size_(size), thread_([this] {
        std::unique_lock lock(mutex_);
        while (!stopping_) {
          lock.unlock();
          try {
            signs_.Beat();
          } catch (const PeerError&) {
            return;  // Nobody can be told any more.
          }
          lock.lock();
          changed_.wait_for(lock, std::chrono::seconds(1), [this] { return stopping_; });
        }
      }) {}

Pulse::~Pulse() {
  {
    const std::lock_guard lock(mutex_);
    stopping_ = true;
  }
  changed_.notify_all();
  thread_.join();
}

std::string Pulse::Verdict() const {
  std::vector<std::string> silent;
  try {
    for (const int rank : signs_.Silent(size_, kListen)) silent.push_back(std::to_string(rank));
  } catch (const PeerError&) {
    return "the store is gone as well: rank 0's node is lost, or its launcher has ended";
  }
  if (silent.empty())
    return "every rank is alive: one takes longer for its part than that, and a larger parallel.collective_seconds "
           "waits for it";
  return "rank " + Join(silent, ", ") + (silent.size() == 1 ? " gives" : " give") +
         " no sign of life: frozen, or its node is lost";
}

}  // namespace trainyard
