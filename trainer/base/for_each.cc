#include "trainer/base/for_each.h"

#include <algorithm>
#include <chrono>
#include <condition_variable>
#include <exception>
#include <mutex>
#include <system_error>
#include <thread>
#include <vector>

#include "common/cpus.h"

namespace trainyard {
namespace {

constexpr std::chrono::milliseconds kBetweenLooks{20};

class Work {
 public:
  Work(int64_t count, const std::function<void(int64_t)>& run) : count_(count), run_(run) {}
  ~Work() { Stop(); }
  Work(const Work&) = delete;
  Work& operator=(const Work&) = delete;

  void Start(int64_t threads) {
    for (int64_t i = 0; i < threads && StartOne(); ++i) continue;
    if (!threads_.empty() || threads == 0) return;
    running_ = 1;
    Run();
  }

  // Waits a little; how many are done, and whether nothing runs any more.
  bool Ended(int64_t& done) {
    std::unique_lock lock(mutex_);
    const bool ended = changed_.wait_for(lock, kBetweenLooks, [this] { return running_ == 0; });
    done = done_;
    if (ended && error_) std::rethrow_exception(error_);
    return ended;
  }

 private:
  bool StartOne() {
    const std::lock_guard lock(mutex_);
    try {
      threads_.emplace_back([this] { Run(); });
    } catch (const std::system_error&) {  // at a limit of threads
      return false;
    }
    ++running_;
    return true;
  }

  void Run() {
    std::unique_lock lock(mutex_);
    while (next_ < count_) {
      const int64_t i = next_++;
      lock.unlock();
      std::exception_ptr error;
      try {
        run_(i);
      } catch (...) {
        error = std::current_exception();
      }
      lock.lock();
      if (!error) ++done_;
      if (error) next_ = count_;
      if (error && !error_) error_ = error;
    }
    if (--running_ == 0) changed_.notify_all();
  }

  void Stop() {
    {
      const std::lock_guard lock(mutex_);
      next_ = count_;
    }
    threads_.clear();
  }

  const int64_t count_;
  const std::function<void(int64_t)>& run_;
  std::mutex mutex_;
  std::condition_variable changed_;
  int64_t next_ = 0, done_ = 0, running_ = 0;
  std::exception_ptr error_;
  std::vector<std::jthread> threads_;
};

}  // namespace

void ForEach(int64_t count, int64_t threads, const std::function<void(int64_t)>& run,
             const std::function<void(int64_t done)>& watch) {
  Work work(count, run);
  work.Start(std::min<int64_t>(count, threads > 0 ? threads : AvailableCpus().count));
  int64_t done = 0;
  while (!work.Ended(done)) watch(done);
  watch(done);
}

}  // namespace trainyard
