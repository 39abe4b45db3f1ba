// The clock of durations and deadlines: it only goes forward, whatever happens to the time of day.
#ifndef TRAINYARD_TRAINER_BASE_CLOCK_H_
#define TRAINYARD_TRAINER_BASE_CLOCK_H_

#include <chrono>

namespace trainyard {

// Seconds since a moment that is the same for all processes of a machine until it restarts.
inline double SteadySeconds() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

}  // namespace trainyard

#endif  // TRAINYARD_TRAINER_BASE_CLOCK_H_
