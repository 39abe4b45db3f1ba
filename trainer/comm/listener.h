// Waiting for a host that is not there yet.
#ifndef TRAINYARD_TRAINER_COMM_LISTENER_H_
#define TRAINYARD_TRAINER_COMM_LISTENER_H_

#include <chrono>
#include <functional>
#include <string>

namespace trainyard {

// Waits until something accepts TCP connections at host:port; nothing is sent. The name is resolved
// anew at every try: it may appear, or change its address, while we wait. Says on standard error
// after five seconds, and then every thirty, that `what` is waited for and why it is not there.
// Throws PeerError with the last try's reason at the deadline, after half a second's try at least, and
// StoppedError within a tenth of a second after `stop` (may be empty) returns true, also while a
// name server does not answer.
void WaitForListener(const std::string& host, int port, std::chrono::duration<double> deadline, const std::string& what,
                     const std::function<bool()>& stop = {});

}  // namespace trainyard

#endif  // TRAINYARD_TRAINER_COMM_LISTENER_H_
