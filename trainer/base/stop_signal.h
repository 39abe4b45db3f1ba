// SIGTERM and SIGINT as a request to stop, obeyed at points that all ranks pass in the same order.
#ifndef TRAINYARD_TRAINER_BASE_STOP_SIGNAL_H_
#define TRAINYARD_TRAINER_BASE_STOP_SIGNAL_H_

namespace trainyard {

// A first signal sets the flag; another one at least two seconds later ends the process at once
// with 128 + its number. Call once, before threads are started. A signal that was blocked until now
// is delivered.
void InstallStopHandlers();
// Lets through what was blocked before main (first_moments.cc), for a program that has nothing to
// save: it simply ends.
void UnblockStopSignals();
bool StopRequested();

}  // namespace trainyard

#endif  // TRAINYARD_TRAINER_BASE_STOP_SIGNAL_H_
