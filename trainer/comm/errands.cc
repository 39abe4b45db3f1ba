#include "trainer/comm/errands.h"

#include <condition_variable>
#include <deque>
#include <exception>
#include <mutex>

namespace trainyard {
namespace {

struct Errand {
  std::function<void()> call;
  bool done = false, given_up = false;
  std::exception_ptr error;
};

}  // namespace

struct Errands::Shared {
  std::mutex mutex;
  std::condition_variable changed;
  std::deque<std::shared_ptr<Errand>> queue;
  bool stopping = false;
  bool overdue = false;  // someone has given up waiting, and the call under way has not returned since

  void Run() {
    std::unique_lock lock(mutex);
    for (;;) {
      changed.wait(lock, [&] { return stopping || !queue.empty(); });
      if (stopping) return;
      const std::shared_ptr<Errand> errand = std::move(queue.front());
      queue.pop_front();
      if (errand->given_up) {
        overdue = false;  // nothing is under way
        continue;
      }
      lock.unlock();
      try {
        errand->call();
      } catch (...) {
        errand->error = std::current_exception();
      }
      errand->call = nullptr;  // Whoever asked destroys what it uses, unless nobody waits any more.
      lock.lock();
      errand->done = true;
      overdue = false;
      changed.notify_all();
    }
  }
};

Errands::Errands() : shared_(std::make_shared<Shared>()), thread_([shared = shared_] { shared->Run(); }) {}

Errands::~Errands() {
  bool overdue = false;
  {
    const std::lock_guard lock(shared_->mutex);
    shared_->stopping = true;
    shared_->changed.notify_all();
    overdue = shared_->overdue;
  }
  // Unless a call is overdue the thread has nothing to do but end.
  thread_.WaitFor(std::chrono::seconds(overdue ? 0 : 1));
}

bool Errands::Do(std::function<void()> call, std::chrono::duration<double> patience) {
  const auto errand = std::make_shared<Errand>();
  errand->call = std::move(call);
  std::unique_lock lock(shared_->mutex);
  if (shared_->overdue) return false;
  shared_->queue.push_back(errand);
  shared_->changed.notify_all();
  // Whoever was frozen itself finds only one of the slices over when it wakes.
  constexpr int kSlices = 16;
  for (int slice = 0; slice < kSlices && !errand->done && !shared_->overdue; ++slice)
    shared_->changed.wait_for(lock, patience / kSlices, [&] { return errand->done || shared_->overdue; });
  if (!errand->done) {
    errand->given_up = shared_->overdue = true;
    shared_->changed.notify_all();
    return false;
  }
  if (errand->error) std::rethrow_exception(errand->error);
  return true;
}

}  // namespace trainyard
