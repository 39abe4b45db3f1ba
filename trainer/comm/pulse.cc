#include "trainer/comm/pulse.h"

#include <condition_variable>
#include <mutex>
#include <vector>

#include "trainer/base/error.h"
#include "trainer/base/text.h"

namespace trainyard {
namespace {

std::string LeftKey(int rank) { return "left/" + std::to_string(rank); }

// "rank 1 gives", "rank 1, 2 give"
std::string Ranks(const std::vector<std::string>& ranks, const char* one, const char* more) {
  return "rank " + Join(ranks, ", ") + " " + (ranks.size() == 1 ? one : more);
}

std::shared_ptr<Store> PulsesIn(std::shared_ptr<Store> store) {
  return std::make_shared<PrefixStore>(std::move(store), "pulse/");
}

}  // namespace

// A living rank beats once a second; a crowded machine may delay it. With what comes before and behind it, a verdict
// has to be there five seconds after the deadline.
constexpr std::chrono::duration<double> Pulse::kListen{2.5};

struct Pulse::Shared {
  Shared(std::shared_ptr<Store> s, int r) : store(PulsesIn(std::move(s))), rank(r), signs(store, rank, {}) {}

  void Run() {
    std::unique_lock lock(mutex);
    while (!stopping) {
      lock.unlock();
      bool answered = true;
      try {
        signs.Beat();
      } catch (const std::exception&) {
        answered = false;  // A host that was frozen may come back.
      }
      lock.lock();
      if (answered) ++beats;
      changed.notify_all();
      changed.wait_for(lock, std::chrono::seconds(1), [this] { return stopping; });
    }
    lock.unlock();
    SayLeft();
  }

  // No more beats are no sign of a frozen process, then.
  void SayLeft() {
    try {
      store->Set(LeftKey(rank), "");
    } catch (const std::exception&) {  // Then it is the store that everybody misses.
    }
  }

  const std::shared_ptr<Store> store;
  const int rank;
  SignsOfLife signs;
  std::mutex mutex;
  std::condition_variable changed;
  int64_t beats = 0;  // that the store has answered
  bool stopping = false;
};

Pulse::Pulse(std::shared_ptr<Store> store, int rank, int size)
    : size_(size),
      shared_(std::make_shared<Shared>(std::move(store), rank)),
      thread_([shared = shared_] { shared->Run(); }) {}

Pulse::~Pulse() {
  {
    const std::lock_guard lock(shared_->mutex);
    shared_->stopping = true;
    shared_->changed.notify_all();
  }
  thread_.WaitFor(std::chrono::seconds(1));
}

std::function<ProcessSign(int)> Pulse::Of(std::shared_ptr<Store> store) {
  return [pulses = PulsesIn(std::move(store))](int rank) {
    return ProcessSign{SignsOfLife::SignIn(*pulses, rank), pulses->Get(LeftKey(rank)).has_value()};
  };
}

std::optional<Pulse::Quiet> Pulse::Silence() const {
  const Quiet no_store{
      "the store does not answer either: rank 0's node is lost, or its launcher is frozen or "
      "has ended"};
  {
    std::unique_lock lock(shared_->mutex);
    const int64_t before = shared_->beats;
    if (!shared_->changed.wait_for(lock, kListen, [&] { return shared_->beats > before; })) return no_store;
  }
  std::vector<std::string> silent, left;
  try {
    for (const int rank : shared_->signs.Silent(size_, kListen))
      (shared_->store->Get(LeftKey(rank)) ? left : silent).push_back(std::to_string(rank));
  } catch (const PeerError&) {
    return no_store;
  }
  if (!silent.empty()) return Quiet{Ranks(silent, "gives", "give") + " no sign of life: frozen, or its node is lost"};
  if (!left.empty()) return Quiet{Ranks(left, "has", "have") + " ended since", true};
  return {};
}

}  // namespace trainyard
