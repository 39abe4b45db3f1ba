#include "trainer/base/stop_signal.h"

#include <signal.h>
#include <time.h>
#include <unistd.h>

#include <atomic>

namespace trainyard {
namespace {

// Milliseconds of the monotonic clock at the first signal; 0: none yet. A handler may only touch
// lock-free atomics and call async-signal-safe functions.
std::atomic<long long> first_signal_ms{0};
static_assert(std::atomic<long long>::is_always_lock_free);

void OnSignal(int signal) {
  timespec now{};
  clock_gettime(CLOCK_MONOTONIC, &now);
  const long long ms = now.tv_sec * 1000LL + now.tv_nsec / 1000000 + 1;
  long long expected = 0;
  if (first_signal_ms.compare_exchange_strong(expected, ms)) return;
  if (ms - expected >= 2000) _exit(128 + signal);
}

}  // namespace

void InstallStopHandlers() {
  struct sigaction action {};
  action.sa_handler = OnSignal;
  action.sa_flags = SA_RESTART;
  sigemptyset(&action.sa_mask);
  sigaction(SIGTERM, &action, nullptr);
  sigaction(SIGINT, &action, nullptr);
  signal(SIGPIPE, SIG_IGN);
  UnblockStopSignals();
}

void UnblockStopSignals() {
  sigset_t stop_signals;
  sigemptyset(&stop_signals);
  sigaddset(&stop_signals, SIGTERM);
  sigaddset(&stop_signals, SIGINT);
  pthread_sigmask(SIG_UNBLOCK, &stop_signals, nullptr);
}

bool StopRequested() { return first_signal_ms.load() != 0; }

}  // namespace trainyard
