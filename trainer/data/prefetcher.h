// Produces items 0, 1, 2, ... in order, on several threads, a bounded number ahead.
#ifndef TRAINYARD_TRAINER_DATA_PREFETCHER_H_
#define TRAINYARD_TRAINER_DATA_PREFETCHER_H_

#include <condition_variable>
#include <cstdint>
#include <exception>
#include <functional>
#include <map>
#include <mutex>
#include <thread>
#include <vector>

namespace trainyard {

// Contract
//   - Ordered: Next() returns item i after item i - 1, whichever thread was faster.
//   - Bounded: at most `depth` items are made or being made beyond the last one taken.
//   - Errors keep their place: an exception thrown while making item i leaves Next() when item i is
//     due; later items are then of no use.
//   - The destructor waits for running productions and drops what was made.
// One thread calls Next.
template <class T>
class Prefetcher {
 public:
  using Make = std::function<T(int64_t index)>;

  // Makes items [first, end).
  Prefetcher(Make make, int64_t first, int64_t end, int threads, int64_t depth)
      : make_(std::move(make)), taken_(first), next_(first), end_(end), depth_(depth) {
    for (int i = 0; i < threads; ++i) threads_.emplace_back([this] { Work(); });
  }

  ~Prefetcher() {
    {
      const std::lock_guard lock(mutex_);
      stopping_ = true;
    }
    changed_.notify_all();
    for (std::thread& thread : threads_) thread.join();
  }

  Prefetcher(const Prefetcher&) = delete;
  Prefetcher& operator=(const Prefetcher&) = delete;

  // REQUIRES: fewer than end - first items were taken.
  T Next() {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [&] { return ready_.contains(taken_); });
    Item item = std::move(ready_.at(taken_));
    ready_.erase(taken_++);
    changed_.notify_all();
    if (item.error) std::rethrow_exception(item.error);
    return std::move(item.value);
  }

 private:
  struct Item {
    T value{};
    std::exception_ptr error;
  };

  void Work() {
    std::unique_lock lock(mutex_);
    for (;;) {
      changed_.wait(lock, [&] { return stopping_ || (next_ < end_ && next_ < taken_ + depth_); });
      if (stopping_) return;
      const int64_t index = next_++;
      lock.unlock();
      Item item;
      try {
        item.value = make_(index);
      } catch (...) {
        item.error = std::current_exception();
      }
      lock.lock();
      ready_[index] = std::move(item);
      changed_.notify_all();
    }
  }

  Make make_;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::map<int64_t, Item> ready_;
  int64_t taken_, next_, end_, depth_;
  bool stopping_ = false;
  std::vector<std::thread> threads_;
};

}  // namespace trainyard

#endif  // TRAINYARD_TRAINER_DATA_PREFETCHER_H_
