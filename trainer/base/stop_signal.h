// SIGTERM, SIGINT and SIGHUP as a request to stop, obeyed at points that all ranks pass in the same order.
#ifndef TRAINYARD_TRAINER_BASE_STOP_SIGNAL_H_
#define TRAINYARD_TRAINER_BASE_STOP_SIGNAL_H_

#include <signal.h>

#include <cstdint>

namespace trainyard {

// SIGTERM, SIGINT, and SIGHUP (a terminal or a connection that is lost) unless it is ignored, as nohup has it.
sigset_t StopSignalSet();

struct StopSignal {
  int number = 0;
  bool from_terminal = false;  // Ctrl-C, and not a process that called kill
  int64_t ms = 0;              // of the monotonic clock
};
// `code`: what the system says of the sender (siginfo_t::si_code). Now.
StopSignal StopSignalNow(int number, int code);

// Whether `next` asks for an end at once, after `first` has asked for a stop. One stop may arrive on
// two paths within moments: a terminal signals the whole process group, and whoever started us
// forwards; so for half a second only a second Ctrl-C counts, since the terminal sends each one once. A terminal that
// is lost never asks again: it may have been closed behind a Ctrl-C.
bool AsksAgain(const StopSignal& first, const StopSignal& next);

struct StopWords {
  // What the first and the second signal write to standard error; must outlive the process.
  const char* first = "";
  const char* second = "";
  // The launcher forwards the first request alone, and what it sends is never a second one.
  bool launched = false;
};

// A first signal sets the flag; another one that AsksAgain ends the process at once with 128 + its
// number. Call once, before threads are started. A signal that was blocked until now is delivered.
void InstallStopHandlers(const StopWords& words);
// Lets through what was blocked before main (first_moments.cc), for a program that has nothing to
// save: it simply ends.
void UnblockStopSignals();
// For such a program while it should say what it leaves behind: writes these words, which must outlive the next call,
// and ends with 128 + the signal's number.
void EndOnStop(const char* text);
bool StopRequested();
// Whether a stop waits, for a program that keeps StopSignalSet blocked.
bool StopPending();

}  // namespace trainyard

#endif  // TRAINYARD_TRAINER_BASE_STOP_SIGNAL_H_
