#include "trainer/base/stop_signal.h"

#include <signal.h>
#include <time.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <cstring>

namespace trainyard {
namespace {

constexpr int64_t kOneStopMs = 500;

// The first signal: its time, doubled, plus one if it came from the terminal. 0: none yet. A handler
// may only touch lock-free atomics and call async-signal-safe functions.
std::atomic<int64_t> first_stop{0};
static_assert(std::atomic<int64_t>::is_always_lock_free);
StopWords words;  // written before there is a handler
std::atomic<const char*> last_words{""};

void Handle(const struct sigaction& action) {
  const sigset_t signals = StopSignalSet();
  for (int number : {SIGTERM, SIGINT, SIGHUP}) {
    if (sigismember(&signals, number)) sigaction(number, &action, nullptr);
  }
}

void Say(const char* text) {
  const int kept = errno;
  [[maybe_unused]] const ssize_t written = write(STDERR_FILENO, text, std::strlen(text));
  errno = kept;
}

void OnSignal(int number, siginfo_t* info, void*) {
  const StopSignal now = StopSignalNow(number, info->si_code);
  int64_t first = 0;
  if (first_stop.compare_exchange_strong(first, now.ms * 2 + (now.from_terminal ? 1 : 0))) return Say(words.first);
  if (words.launched && info->si_code == SI_USER && info->si_pid == getppid()) return;
  if (!AsksAgain({number, first % 2 != 0, first / 2}, now)) return;
  Say(words.second);
  _exit(128 + number);
}

}  // namespace

sigset_t StopSignalSet() {
  sigset_t signals;
  sigemptyset(&signals);
  for (int number : {SIGTERM, SIGINT}) sigaddset(&signals, number);
  struct sigaction hangup {};
  if (sigaction(SIGHUP, nullptr, &hangup) == 0 && hangup.sa_handler != SIG_IGN) sigaddset(&signals, SIGHUP);
  return signals;
}

StopSignal StopSignalNow(int number, int code) {
  timespec now{};
  clock_gettime(CLOCK_MONOTONIC, &now);
  return {number, code == SI_KERNEL, now.tv_sec * 1000 + now.tv_nsec / 1000000 + 1};
}

bool AsksAgain(const StopSignal& first, const StopSignal& next) {
  if (next.number == SIGHUP) return false;
  return (first.from_terminal && next.from_terminal) || next.ms - first.ms >= kOneStopMs;
}

void InstallStopHandlers(const StopWords& said) {
  words = said;
  struct sigaction action {};
  action.sa_sigaction = OnSignal;
  action.sa_flags = SA_RESTART | SA_SIGINFO;
  sigemptyset(&action.sa_mask);
  Handle(action);
  signal(SIGPIPE, SIG_IGN);
  UnblockStopSignals();
}

void EndOnStop(const char* text) {
  last_words = text;
  struct sigaction action {};
  action.sa_handler = [](int number) {
    Say(last_words);
    _exit(128 + number);
  };
  sigemptyset(&action.sa_mask);
  Handle(action);
}

void UnblockStopSignals() {
  const sigset_t signals = StopSignalSet();
  pthread_sigmask(SIG_UNBLOCK, &signals, nullptr);
}

bool StopRequested() { return first_stop.load() != 0; }

bool StopPending() {
  sigset_t pending, asked;
  const sigset_t signals = StopSignalSet();
  sigpending(&pending);
  sigandset(&asked, &pending, &signals);
  return !sigisemptyset(&asked);
}

}  // namespace trainyard
