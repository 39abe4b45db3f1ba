// Threads whose work may never end: a name server that is silent, a volume whose server is gone, a store that is lost.
#ifndef TRAINYARD_TRAINER_BASE_ABANDONABLE_THREAD_H_
#define TRAINYARD_TRAINER_BASE_ABANDONABLE_THREAD_H_

#include <chrono>
#include <functional>
#include <future>
#include <thread>

namespace trainyard {

// For use by one thread.
class AbandonableThread {
 public:
  // Runs `work`, which owns what it uses and throws nothing. No signal comes to it: they are the other threads'
  // business. Throws std::system_error where there can be no thread.
  explicit AbandonableThread(std::function<void()> work);
  // Does not wait: work that has not ended is left behind with its thread, which ends with the process.
  ~AbandonableThread();
  AbandonableThread(const AbandonableThread&) = delete;
  AbandonableThread& operator=(const AbandonableThread&) = delete;

  // Returns whether the work has ended, and what it used is destroyed, by then.
  bool WaitUntil(std::chrono::steady_clock::time_point deadline) const;
  bool WaitFor(std::chrono::milliseconds patience) const;

 private:
  std::future<void> ended_;
  std::thread thread_;
};

// Calls `call`, which owns what it uses and throws nothing, on such a thread. Returns whether it came back in time.
// Where there can be no thread it is waited for.
bool Within(std::chrono::milliseconds patience, const std::function<void()>& call);

}  // namespace trainyard

#endif  // TRAINYARD_TRAINER_BASE_ABANDONABLE_THREAD_H_
