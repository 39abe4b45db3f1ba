// Where the time of reading samples goes.
#ifndef TRAINYARD_TRAINER_DATA_STAGE_TIMES_H_
#define TRAINYARD_TRAINER_DATA_STAGE_TIMES_H_

#include <atomic>

#include "trainer/base/clock.h"

namespace trainyard {

// Seconds of all threads together since the start. Safe for any number of threads.
struct StageTimes {
  std::atomic<double> read = 0;       // bytes from files, the cache's included
  std::atomic<double> decode = 0;     // bytes to values: decompression, conversion
  std::atomic<double> transform = 0;  // values to values
};

// Adds the time from here to the end of the scope to `to`; nothing where that is null.
class StageTimer {
 public:
  explicit StageTimer(std::atomic<double>* to) : to_(to), start_(to ? SteadySeconds() : 0) {}
  ~StageTimer() {
    if (to_) *to_ += SteadySeconds() - start_;
  }
  StageTimer(const StageTimer&) = delete;
  StageTimer& operator=(const StageTimer&) = delete;

 private:
  std::atomic<double>* to_;
  double start_;
};

}  // namespace trainyard

#endif  // TRAINYARD_TRAINER_DATA_STAGE_TIMES_H_
