// Calls that may never return, made on a thread of their own.
#ifndef TRAINYARD_TRAINER_COMM_ERRANDS_H_
#define TRAINYARD_TRAINER_COMM_ERRANDS_H_

#include <chrono>
#include <functional>
#include <memory>

#include "trainer/base/abandonable_thread.h"

namespace trainyard {

// Safe for any number of threads; the calls are made one after the other.
class Errands {
 public:
  Errands();
  // Takes a second at most. A call that has not returned is left behind with its thread, which ends with the process.
  ~Errands();
  Errands(const Errands&) = delete;
  Errands& operator=(const Errands&) = delete;

  // Returns when the call has returned, or throws what it threw. False when that takes longer than `patience`, and at
  // once while one that took longer has still not returned; a call that has begun may then come to pass later. `call`
  // owns what it uses.
  bool Do(std::function<void()> call, std::chrono::duration<double> patience);

 private:
  struct Shared;

  std::shared_ptr<Shared> shared_;  // the thread's as well
  AbandonableThread thread_;
};

}  // namespace trainyard

#endif  // TRAINYARD_TRAINER_COMM_ERRANDS_H_
