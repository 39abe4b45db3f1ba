// SIGTERM, Ctrl-C and SIGHUP, counted.
#ifndef TRAINYARD_OPERATOR_STOP_SIGNALS_H_
#define TRAINYARD_OPERATOR_STOP_SIGNALS_H_

namespace trainyard {

// From here on SIGTERM and SIGINT are counted instead of ending the program, and so is SIGHUP unless it is ignored
// (nohup); SIGPIPE is ignored.
void CatchStopSignals();
// How many have come.
int StopSignals();

}  // namespace trainyard

#endif  // TRAINYARD_OPERATOR_STOP_SIGNALS_H_
