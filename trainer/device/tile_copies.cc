#include "trainer/device/tile_copies.h"

#include <ATen/ops/empty.h>

#include <condition_variable>
#include <cstring>
#include <deque>
#include <mutex>
#include <stdexcept>
#include <thread>

namespace trainyard {
namespace {

class HostCopies : public TileCopies {
 public:
  HostCopies() : thread_([this] { Loop(); }) {}
  ~HostCopies() override {
    {
      const std::lock_guard lock(mutex_);
      stopping_ = true;
    }
    changed_.notify_all();
    thread_.join();
  }

  at::Tensor HostMemory(int64_t elements, at::ScalarType type) override { return at::empty({elements}, type); }

  Event Copy(const at::Tensor& from, const at::Tensor& to) override {
    if (from.nbytes() != to.nbytes() || from.scalar_type() != to.scalar_type())
      throw std::logic_error("a copy between tensors of different sizes or types");
    Event event = 0;
    {
      const std::lock_guard lock(mutex_);
      queue_.push_back({from, to});
      event = ++submitted_;
    }
    changed_.notify_all();
    return event;
  }

  void Wait(Event event) override {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [&] { return done_ >= event; });
  }

 private:
  struct Job {
    at::Tensor from, to;
  };

  void Loop() {
    std::unique_lock lock(mutex_);
    for (;;) {
      changed_.wait(lock, [&] { return stopping_ || !queue_.empty(); });
      if (queue_.empty()) return;
      Job job = std::move(queue_.front());
      queue_.pop_front();
      lock.unlock();
      std::memcpy(job.to.mutable_data_ptr(), job.from.const_data_ptr(), job.from.nbytes());
      job = {};
      lock.lock();
      ++done_;
      changed_.notify_all();
    }
  }

  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<Job> queue_;
  Event submitted_ = 0, done_ = 0;
  bool stopping_ = false;
  std::thread thread_;
};

}  // namespace

std::unique_ptr<TileCopies> MakeHostCopies() { return std::make_unique<HostCopies>(); }

}  // namespace trainyard
