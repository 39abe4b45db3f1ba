// Locks in the types: with clang, -Wthread-safety refuses access to a guarded member without its mutex.
// The attributes are those of https://clang.llvm.org/docs/ThreadSafetyAnalysis.html.
#ifndef TRAINYARD_OPERATOR_BASE_MUTEX_H_
#define TRAINYARD_OPERATOR_BASE_MUTEX_H_

#include <algorithm>
#include <chrono>
#include <condition_variable>
#include <mutex>

#if defined(__clang__)
#define TRAINYARD_ATTRIBUTE(x) __attribute__((x))
#else
#define TRAINYARD_ATTRIBUTE(x)
#endif
#define GUARDED_BY(x) TRAINYARD_ATTRIBUTE(guarded_by(x))
#define REQUIRES_LOCK(...) TRAINYARD_ATTRIBUTE(requires_capability(__VA_ARGS__))

namespace trainyard {

class TRAINYARD_ATTRIBUTE(capability("mutex")) Mutex {
 public:
  void lock() TRAINYARD_ATTRIBUTE(acquire_capability()) { mutex_.lock(); }
  void unlock() TRAINYARD_ATTRIBUTE(release_capability()) { mutex_.unlock(); }

 private:
  friend class CondVar;
  std::mutex mutex_;
};

class TRAINYARD_ATTRIBUTE(scoped_lockable) MutexLock {
 public:
  explicit MutexLock(Mutex& mutex) TRAINYARD_ATTRIBUTE(acquire_capability(mutex)) : mutex_(mutex) { mutex_.lock(); }
  ~MutexLock() TRAINYARD_ATTRIBUTE(release_capability()) { mutex_.unlock(); }
  MutexLock(const MutexLock&) = delete;
  MutexLock& operator=(const MutexLock&) = delete;

 private:
  Mutex& mutex_;
};

// Waits with a Mutex that the caller holds. Spurious wakes are possible: wait in a loop.
class CondVar {
 public:
  // False when the time is over.
  bool WaitFor(Mutex& mutex, std::chrono::duration<double> time) REQUIRES_LOCK(mutex) {
    // A wait of years overflows the clock's arithmetic.
    const auto capped = std::min(time, std::chrono::duration<double>(86400.0 * 365));
    std::unique_lock<std::mutex> held(mutex.mutex_, std::adopt_lock);
    const bool in_time = condition_.wait_for(held, capped) == std::cv_status::no_timeout;
    held.release();  // the caller holds it still
    return in_time;
  }
  void NotifyAll() { condition_.notify_all(); }
  void NotifyOne() { condition_.notify_one(); }

 private:
  std::condition_variable condition_;
};

}  // namespace trainyard

#endif  // TRAINYARD_OPERATOR_BASE_MUTEX_H_
