// How the ranks of a world are connected, whatever carries their tensors.
#ifndef TRAINYARD_TRAINER_COMM_CONNECT_OPTIONS_H_
#define TRAINYARD_TRAINER_COMM_CONNECT_OPTIONS_H_

#include <chrono>
#include <functional>
#include <string>

namespace trainyard {

class FlightRecorder;

struct ConnectOptions {
  int rank = 0, size = 1;
  std::string interface;  // this rank's address, as other ranks reach it
  std::chrono::duration<double> rendezvous_timeout{300};
  std::chrono::duration<double> collective_timeout{600};
  // Asked when a collective was not answered in time, from another thread: a sentence. May be empty.
  std::function<std::string()> who_is_silent = {};
  // What waits for this device waits for ever, and only the end of the process ends that; from another thread, with
  // why. May be empty.
  std::function<void(const std::string& failure)> stuck = {};
  // Where collectives are noted, as of `group`; may be null.
  FlightRecorder* recorder = nullptr;
  std::string group = {};
};

}  // namespace trainyard

#endif  // TRAINYARD_TRAINER_COMM_CONNECT_OPTIONS_H_
