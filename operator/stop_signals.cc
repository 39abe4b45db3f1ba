#include "operator/stop_signals.h"

#include <csignal>

namespace trainyard {
namespace {

volatile std::sig_atomic_t stop_signals = 0;

void Count(int) { stop_signals = stop_signals + 1; }

}  // namespace

void CatchStopSignals() {
  struct sigaction action {};
  action.sa_handler = Count;
  sigemptyset(&action.sa_mask);
  sigaction(SIGTERM, &action, nullptr);
  sigaction(SIGINT, &action, nullptr);
  // A terminal that closes, unless nohup said that it may.
  struct sigaction hangup {};
  if (sigaction(SIGHUP, nullptr, &hangup) == 0 && hangup.sa_handler != SIG_IGN) sigaction(SIGHUP, &action, nullptr);
  std::signal(SIGPIPE, SIG_IGN);
}

int StopSignals() { return stop_signals; }

}  // namespace trainyard
