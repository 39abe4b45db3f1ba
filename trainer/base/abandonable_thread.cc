#include "trainer/base/abandonable_thread.h"

#include <signal.h>

#include <optional>
#include <system_error>
#include <utility>

namespace trainyard {
namespace {

void Run(std::function<void()> work, std::promise<void> ended) {
  sigset_t all;
  sigfillset(&all);
  pthread_sigmask(SIG_SETMASK, &all, nullptr);
  work();
  work = nullptr;
  ended.set_value();
}

}  // namespace

AbandonableThread::AbandonableThread(std::function<void()> work) {
  std::promise<void> ended;
  ended_ = ended.get_future();
  thread_ = std::thread(Run, std::move(work), std::move(ended));
}

AbandonableThread::~AbandonableThread() { WaitFor(std::chrono::milliseconds(0)) ? thread_.join() : thread_.detach(); }

bool AbandonableThread::WaitUntil(std::chrono::steady_clock::time_point deadline) const {
  return ended_.wait_until(deadline) == std::future_status::ready;
}

bool AbandonableThread::WaitFor(std::chrono::milliseconds patience) const {
  return ended_.wait_for(patience) == std::future_status::ready;
}

bool Within(std::chrono::milliseconds patience, const std::function<void()>& call) {
  std::optional<AbandonableThread> thread;
  try {
    thread.emplace(call);
  } catch (const std::system_error&) {
    call();
    return true;
  }
  return thread->WaitFor(patience);
}

}  // namespace trainyard
