#include "operator/reconcile/in_parallel.h"

#include <algorithm>
#include <atomic>
#include <exception>
#include <thread>
#include <vector>

#include "operator/base/mutex.h"

namespace trainyard::reconcile {
namespace {

// Out of a thread an exception would end the process.
Status Guarded(const std::function<Status(size_t)>& f, size_t i) {
  try {
    return f(i);
  } catch (const std::exception& error) {
    return Status(Code::kInternal, std::string("a defect of the operator: ") + error.what());
  }
}

// Not of std::jthread, whose stop_token makes system calls by number, which nothing in an image shall.
struct Pool {
  std::vector<std::thread> threads;
  ~Pool() { Join(); }
  void Join() {
    for (std::thread& thread : threads)
      if (thread.joinable()) thread.join();
  }
};

}  // namespace

Status InParallel(size_t count, int parallel, const std::function<Status(size_t)>& f) {
  std::atomic<size_t> next{0};
  Mutex mutex;
  Status first;
  const auto work = [&] {
    for (size_t i = next++; i < count; i = next++) {
      const Status status = Guarded(f, i);
      if (status.ok()) continue;
      next = count;
      const MutexLock lock(mutex);
      if (first.ok()) first = status;
    }
  };
  const size_t others = std::min(count, static_cast<size_t>(std::max(parallel, 1))) - (count > 0 ? 1 : 0);
  Pool pool;
  try {
    pool.threads.reserve(others);
    while (pool.threads.size() < others) pool.threads.emplace_back(work);
  } catch (const std::exception&) {
    // a limit of the machine or of the container, of threads or of memory
  }
  work();
  pool.Join();
  return first;
}

}  // namespace trainyard::reconcile
